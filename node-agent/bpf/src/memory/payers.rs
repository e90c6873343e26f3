//! On whose behalf memory is taken: namespaces share it. A namespace that has much leaves something for others, that may come.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A namespace may have so many times what it leaves: alone three quarters of all, the next three quarters of the rest, and so on. Not as
/// other pools, of which it leaves as much as it has: most clusters have one namespace whose pods are measured.
const TIMES: u64 = 3;

thread_local! {
    static PAYER: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
}

/// Does this on behalf of a namespace, or of the node itself: what memory is taken meanwhile by this thread is charged to it.
pub fn on_behalf_of<T>(namespace: Option<Arc<str>>, work: impl FnOnce() -> T) -> T {
    /// Whoever paid before pays again, also after a panic.
    struct Before(Option<Arc<str>>);
    impl Drop for Before {
        fn drop(&mut self) {
            PAYER.set(self.0.take());
        }
    }
    let _before = Before(PAYER.replace(namespace));
    work()
}

/// Who pays for what this thread takes.
pub fn payer() -> Option<Arc<str>> {
    PAYER.with_borrow(Clone::clone)
}

/// What one that has so much may still take, where so much is left for all.
pub(super) fn share(held: u64, left: u64) -> u64 {
    // held + more <= TIMES * (left - more)
    left.saturating_mul(TIMES).saturating_sub(held) / (TIMES + 1)
}

/// What each has.
#[derive(Debug)]
pub(super) struct Payers(Mutex<BTreeMap<Arc<str>, Held>>);

#[derive(Debug, Default)]
struct Held {
    maps: u64,
    books: u64,
}

impl Payers {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    pub(super) fn held(&self, payer: &str) -> u64 {
        let all = self.all();
        all.get(payer)
            .map_or(0, |held| held.maps.saturating_add(held.books))
    }

    pub(super) fn take(&self, payer: Option<&Arc<str>>, bytes: u64) {
        if let Some(payer) = payer {
            self.all().entry(Arc::clone(payer)).or_default().maps += bytes;
        }
    }

    pub(super) fn give_back(&self, payer: Option<&Arc<str>>, bytes: u64) {
        let Some(payer) = payer else { return };
        let mut all = self.all();
        if let Some(held) = all.get_mut(payer) {
            held.maps = held.maps.saturating_sub(bytes);
            if held.maps == 0 && held.books == 0 {
                all.remove(payer);
            }
        }
    }

    pub(super) fn take_books(&self, payer: Option<&Arc<str>>, bytes: u64) {
        if let Some(payer) = payer {
            self.all().entry(Arc::clone(payer)).or_default().books += bytes;
        }
    }

    pub(super) fn set_books(&self, mut books: BTreeMap<Arc<str>, u64>) {
        let mut all = self.all();
        all.retain(|payer, held| {
            held.books = books.remove(payer).unwrap_or_default();
            held.maps > 0 || held.books > 0
        });
        let new = books.into_iter().filter(|(_, books)| *books > 0);
        all.extend(new.map(|(payer, books)| (payer, Held { maps: 0, books })));
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Held>> {
        // Nothing panics while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
