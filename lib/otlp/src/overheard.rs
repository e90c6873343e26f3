//! Connections of which is remembered what the other side said as it ended them.
//!
//! In TLS 1.3 a client has begun to send before the receiver has looked at its certificate. What the receiver says then comes to whoever
//! reads the connection: of HTTP/2 that is nobody who tells, and the request fails as one of a connection that closed.

use std::{
    error::Error,
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use hyper::{
    Uri,
    rt::{Read, ReadBuf, ReadBufCursor, Write},
};
use hyper_util::client::legacy::connect::{Connected, Connection};
use rustls::AlertDescription;
use tower_service::Service;

/// What was said last, if anything was.
#[derive(Clone, Debug, Default)]
pub struct LastWord(Arc<Mutex<Option<AlertDescription>>>);

impl LastWord {
    /// Forgets it, and says what it was.
    pub fn take(&self) -> Option<AlertDescription> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn note(&self, error: &io::Error) {
        if let Some(said) = said(error) {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(said);
        }
    }
}

/// What the other side of a connection said as it ended it, if this error is of that.
pub fn said(error: &(dyn Error + 'static)) -> Option<AlertDescription> {
    let mut next = Some(error);
    while let Some(error) = next {
        // An error of I/O does not name what it is made of as its source.
        let io = error.downcast_ref::<io::Error>();
        let tls = error.downcast_ref::<rustls::Error>();
        let tls = tls.or_else(|| io?.get_ref()?.downcast_ref());
        if let Some(rustls::Error::AlertReceived(alert)) = tls {
            return Some(*alert);
        }
        next = error.source();
    }
    None
}

/// Makes such connections.
#[derive(Clone, Debug)]
pub struct Overhearing<C> {
    pub connector: C,
    pub last_word: LastWord,
}

impl<C> Service<Uri> for Overhearing<C>
where
    C: Service<Uri>,
    C::Future: Send + 'static,
{
    type Response = Overheard<C::Response>;
    type Error = C::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, C::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), C::Error>> {
        self.connector.poll_ready(context)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let connecting = self.connector.call(to);
        let last_word = self.last_word.clone();
        Box::pin(async move {
            let stream = connecting.await?;
            Ok(Overheard {
                stream,
                last_word,
                broken: None,
            })
        })
    }
}

/// Such a connection.
#[derive(Debug)]
pub struct Overheard<S> {
    stream: S,
    last_word: LastWord,
    /// Why nothing can be written any more, while what was said before that is read.
    broken: Option<io::Error>,
}

impl<S: Connection> Connection for Overheard<S> {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

impl<S: Read + Unpin> Read for Overheard<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let Self {
            stream, last_word, ..
        } = self.get_mut();
        let read = Pin::new(stream).poll_read(context, into);
        if let Poll::Ready(Err(error)) = &read {
            last_word.note(error);
        }
        read
    }
}

impl<S: Read + Write + Unpin> Overheard<S> {
    /// Writes. Who finds that nothing can be written any more ends, and would not read what was said before that: so the failure is told
    /// once that is read. A connection that is broken has something to be read at once, be it its end.
    fn write<T>(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let failure = match self.broken.take() {
            Some(failure) => failure,
            None => match write(Pin::new(&mut self.stream), context) {
                Poll::Ready(Err(failure)) => failure,
                written => return written,
            },
        };
        loop {
            let mut bytes = [0; 256];
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut self.stream).poll_read(context, buffer.unfilled()) {
                Poll::Pending => {
                    self.broken = Some(failure);
                    return Poll::Pending;
                }
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
                Poll::Ready(Ok(())) => break,
                Poll::Ready(Err(error)) => {
                    self.last_word.note(&error);
                    break;
                }
            }
        }
        Poll::Ready(Err(failure))
    }
}

impl<S: Read + Write + Unpin> Write for Overheard<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut()
            .write(context, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut()
            .write(context, |stream, context| stream.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().write(context, |stream, context| {
            stream.poll_write_vectored(context, slices)
        })
    }
}
