//! Pages of metrics: one a second at most, the same for all who wait for it, and never older than the request: whoever asks sooner waits
//! for the next.
//!
//! A page is some megabytes, reading it from the kernel keeps the engine busy, and anybody who reaches the door may ask. So nobody has
//! a copy: the last two pages are kept, and whoever has not read one when the next but one is made is cut off.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use ckb_probe_k8s::listener::{Page, SharedText};
use tokio::{
    sync::{Notify, mpsc, oneshot, watch},
    time::{Instant, sleep},
};

use super::MetricsRequest;

/// From one page to the next, at least.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// So many are kept for those who have not yet read them.
const KEPT: usize = 2;

/// Where to ask for the next page. Each is told with when it began to be made.
#[derive(Clone)]
pub(super) struct Pages {
    latest: watch::Receiver<Option<(Instant, Page)>>,
    wanted: Arc<Notify>,
}

/// Pages that are made as they are wanted, and what makes them, as long as it is awaited.
pub(super) fn pages(engine: mpsc::Sender<MetricsRequest>) -> (Pages, impl Future<Output = ()>) {
    let (made, latest) = watch::channel(None);
    let wanted = Arc::new(Notify::new());
    let pages = Pages {
        latest,
        wanted: Arc::clone(&wanted),
    };
    let making = async move {
        let mut kept = VecDeque::with_capacity(KEPT);
        loop {
            wanted.notified().await;
            let begun = Instant::now();
            let page = match ask(&engine).await {
                Ok(text) => {
                    kept.truncate(KEPT - 1);
                    let text = Arc::new(text);
                    let page = Page::Shared(SharedText::of(&text));
                    kept.push_front(text);
                    page
                }
                Err(reason) => Page::Unavailable(reason),
            };
            made.send_replace(Some((begun, page)));
            sleep(PAUSE).await;
        }
    };
    (pages, making)
}

async fn ask(engine: &mpsc::Sender<MetricsRequest>) -> Result<String, String> {
    let (sender, receiver) = oneshot::channel();
    let _ = engine.send(sender).await;
    let going = || Err("the agent is going down\n".to_string());
    receiver.await.unwrap_or_else(|_| going())
}

impl Pages {
    /// The next page. Who goes away meanwhile has others have it.
    pub(super) async fn next(mut self) -> Page {
        self.latest.mark_unchanged();
        let asked = Instant::now();
        self.wanted.notify_one();
        while self.latest.changed().await.is_ok() {
            let latest = self.latest.borrow_and_update().clone();
            if let Some((begun, page)) = latest
                && begun >= asked
            {
                return page;
            }
        }
        Page::Unavailable("the agent is going down\n".to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages that say how often they were made.
    fn counted() -> (Pages, Arc<std::sync::atomic::AtomicU64>) {
        let (engine, mut wanted) = mpsc::channel::<MetricsRequest>(1);
        let (pages, making) = pages(engine);
        tokio::spawn(making);
        let made = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let count = Arc::clone(&made);
        tokio::spawn(async move {
            while let Some(answer) = wanted.recv().await {
                let made = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
                let _ = answer.send(Ok(format!("page {made}\n")));
            }
        });
        (pages, made)
    }

    async fn text(pages: &Pages) -> Option<String> {
        match pages.clone().next().await {
            Page::Shared(text) => text.text().map(|text| text.to_string()),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn however_many_ask_a_page_is_made_once_a_second() {
        let (pages, made) = counted();
        assert_eq!(text(&pages).await, Some("page 1\n".to_string()));
        // Each waits for one that is made after it asked; a hundred for the same.
        let asked: Vec<_> = (0..100).map(|_| text(&pages)).collect();
        for page in futures::future::join_all(asked).await {
            assert_eq!(page, Some("page 2\n".to_string()));
        }
        // Whoever asks and goes away at once has it be made no more often.
        let begun = Instant::now();
        while begun.elapsed() < 3 * PAUSE {
            let asks = tokio::spawn(pages.clone().next());
            tokio::time::sleep(Duration::from_millis(10)).await;
            asks.abort();
        }
        let made = made.load(std::sync::atomic::Ordering::Relaxed);
        assert!((4..=6).contains(&made), "{made}");
    }

    #[tokio::test(start_paused = true)]
    async fn two_pages_are_kept_and_no_more() {
        let (pages, _) = counted();
        let mut all = Vec::new();
        for _ in 0..4 {
            match pages.clone().next().await {
                Page::Shared(text) => all.push(text),
                other => panic!("{other:?}"),
            }
            sleep(PAUSE / 10).await;
        }
        let kept: Vec<bool> = all.iter().map(|page| page.text().is_some()).collect();
        assert_eq!(kept, [false, false, true, true]);
    }
}
