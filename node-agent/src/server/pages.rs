//! Pages of metrics: one a second at most, the same for all who wait for it, and never older than the request: whoever asks sooner waits
//! for the next. There are two formats: where somebody waits for each, they take turns.
//!
//! A page is some megabytes, reading it from the kernel keeps the engine busy, and anybody who reaches the door may ask. So nobody has
//! a copy: the last two pages are kept, and whoever has not read one when the next but one is made is cut off.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ckb_probe_k8s::listener::{Page, SharedText};
use tokio::{
    sync::{Notify, mpsc, oneshot, watch},
    time::{Instant, sleep},
};

use super::MetricsRequest;
use crate::{export::exposition::Format, kernel::release_memory};

/// From one page to the next, at least.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// So many are kept for those who have not yet read them.
const KEPT: usize = 2;

/// The last page of each format, with when it began to be made.
type Latest<Side> = [Side; Format::ALL.len()];
type Made = Option<(Instant, Page)>;

/// Where to ask for the next page.
#[derive(Clone)]
pub(super) struct Pages {
    latest: Latest<watch::Receiver<Made>>,
    wanted: Arc<Wanted>,
}

/// Which formats somebody waits for.
#[derive(Default)]
struct Wanted {
    formats: Latest<AtomicBool>,
    any: Notify,
}

/// Pages that are made as they are wanted, and what makes them, as long as it is awaited.
pub(super) fn pages(engine: mpsc::Sender<MetricsRequest>) -> (Pages, impl Future<Output = ()>) {
    let [(text, latest_text), (open, latest_open)] = [watch::channel(None), watch::channel(None)];
    let (made, latest) = ([text, open], [latest_text, latest_open]);
    let wanted: Arc<Wanted> = Arc::default();
    let pages = Pages {
        latest,
        wanted: Arc::clone(&wanted),
    };
    let making = async move {
        let mut kept = VecDeque::with_capacity(KEPT);
        let mut turns = Format::ALL.into_iter().cycle();
        loop {
            let is_wanted =
                |format: &Format| wanted.formats[*format as usize].swap(false, Ordering::Relaxed);
            let Some(format) = turns.by_ref().take(Format::ALL.len()).find(is_wanted) else {
                wanted.any.notified().await;
                continue;
            };
            let begun = Instant::now();
            let page = match ask(&engine, format).await {
                Ok(mut text) => {
                    text.shrink_to_fit();
                    kept.truncate(KEPT - 1);
                    let text = Arc::new(text);
                    let page = Page::Shared(SharedText::of(&text, format.media_type()));
                    kept.push_front(text);
                    page
                }
                Err(reason) => Page::Unavailable(reason),
            };
            made[format as usize].send_replace(Some((begun, page)));
            // What a page is made of is as much as the page.
            release_memory();
            sleep(PAUSE).await;
        }
    };
    (pages, making)
}

async fn ask(engine: &mpsc::Sender<MetricsRequest>, format: Format) -> Result<String, String> {
    let (answer, receiver) = oneshot::channel();
    let _ = engine.send(MetricsRequest { format, answer }).await;
    let going = || Err("the agent is going down\n".to_string());
    receiver.await.unwrap_or_else(|_| going())
}

impl Pages {
    /// The next page. Who goes away meanwhile has others have it.
    pub(super) async fn next(mut self, format: Format) -> Page {
        let made = &mut self.latest[format as usize];
        made.mark_unchanged();
        let asked = Instant::now();
        self.wanted.formats[format as usize].store(true, Ordering::Relaxed);
        self.wanted.any.notify_one();
        while made.changed().await.is_ok() {
            let latest = made.borrow_and_update().clone();
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
            while let Some(MetricsRequest { format, answer }) = wanted.recv().await {
                let made = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
                let kind = match format {
                    Format::Text => "page",
                    Format::OpenMetrics => "open page",
                };
                let _ = answer.send(Ok(format!("{kind} {made}\n")));
            }
        });
        (pages, made)
    }

    async fn text(pages: &Pages) -> Option<String> {
        text_as(pages, Format::Text).await
    }

    async fn text_as(pages: &Pages, format: Format) -> Option<String> {
        match pages.clone().next(format).await {
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
            let asks = tokio::spawn(pages.clone().next(Format::Text));
            tokio::time::sleep(Duration::from_millis(10)).await;
            asks.abort();
        }
        let made = made.load(std::sync::atomic::Ordering::Relaxed);
        assert!((4..=6).contains(&made), "{made}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_one_format_and_who_waits_for_the_other_take_turns() {
        let (pages, made) = counted();
        let begun = Instant::now();
        let asked = Format::ALL.map(|format| text_as(&pages, format));
        let told = futures::future::join_all(asked).await;
        let expected = ["page 1\n", "open page 2\n"].map(|text| Some(text.to_string()));
        assert_eq!(told, expected);
        assert_eq!(begun.elapsed(), PAUSE);
        assert_eq!(made.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn two_pages_are_kept_and_no_more() {
        let (pages, _) = counted();
        let mut all = Vec::new();
        for format in [Format::ALL, Format::ALL].concat() {
            match pages.clone().next(format).await {
                Page::Shared(text) => all.push(text),
                other => panic!("{other:?}"),
            }
            sleep(PAUSE / 10).await;
        }
        let kept: Vec<bool> = all.iter().map(|page| page.text().is_some()).collect();
        assert_eq!(kept, [false, false, true, true]);
    }
}
