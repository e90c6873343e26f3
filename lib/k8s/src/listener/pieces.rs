//! A long text, told piece by piece: whoever reads slowly, or not at all, keeps a piece of it and no more.

use std::{
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
};

use hyper::body::{Body, Bytes, Frame, SizeHint};

/// As much as a connection has of it at a time.
const PIECE: usize = 16 << 10;

/// A text that may be dropped meanwhile.
#[derive(Debug)]
pub(super) struct Pieces {
    text: Weak<String>,
    told: usize,
    all: usize,
}

/// It was: what follows cannot be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the page has gone")]
pub(super) struct Gone;

impl Pieces {
    /// All of this text.
    pub(super) fn of(text: &Arc<String>) -> Self {
        Self {
            text: Arc::downgrade(text),
            told: 0,
            all: text.len(),
        }
    }

    fn next(&mut self) -> Option<Result<Bytes, Gone>> {
        if self.told == self.all {
            return None;
        }
        let Some(text) = self.text.upgrade() else {
            return Some(Err(Gone));
        };
        let end = self.all.min(self.told + PIECE);
        let piece = text.as_bytes().get(self.told..end).unwrap_or_default();
        self.told = end;
        Some(Ok(Bytes::copy_from_slice(piece)))
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Gone;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Gone>>> {
        let piece = self.get_mut().next();
        Poll::Ready(piece.map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.told == self.all
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact((self.all - self.told) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_told_piece_by_piece_until_it_is_dropped() {
        let text = Arc::new("x".repeat(2 * PIECE + 1));
        let mut whole = Pieces::of(&text);
        let mut cut = Pieces::of(&text);
        let mut told = || whole.next().map(|piece| piece.map(|piece| piece.len()));
        assert_eq!(told(), Some(Ok(PIECE)));
        assert_eq!(told(), Some(Ok(PIECE)));
        assert_eq!(told(), Some(Ok(1)));
        assert_eq!(told(), None);
        assert_eq!(cut.next().map(|piece| piece.is_ok()), Some(true));
        drop(text);
        assert_eq!(cut.next(), Some(Err(Gone)));
    }
}
