//! A receiver that answers as it is told.

use std::{
    collections::BTreeSet,
    io::{BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use ckb_probe_traces::{
    Settings,
    messages::{
        ExportTraceServiceRequest, ExportTraceServiceResponse, PartialSuccess, Span as Message,
    },
};
use prost::Message as _;

/// What it does with a request.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Answers with this status.
    Status(u16),
    /// Takes all but so many.
    Partial(i64),
    /// Is busy for so many seconds.
    RetryAfter(u64),
    /// Ends the connection.
    Close,
    /// Says nothing.
    Nothing,
}

/// What it saw.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub requests: usize,
    pub spans: usize,
    /// Spans that came again after it took them.
    pub twice: usize,
    /// Times between requests.
    pub apart: Vec<Duration>,
    /// The head of the last one.
    pub head: String,
    numbers: BTreeSet<Vec<u8>>,
    last: Option<Instant>,
}

pub struct Receiver {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Receiver {
    /// Answers the first request as of 0, and so on.
    pub fn play(answer: impl Fn(usize) -> Answer + Send + Sync + 'static) -> Self {
        Self::play_at("127.0.0.1:0".parse().unwrap(), answer)
    }

    pub fn play_at(
        address: SocketAddr,
        answer: impl Fn(usize) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let over: Arc<AtomicBool> = Arc::default();
        let (books, ended, answer) = (Arc::clone(&seen), Arc::clone(&over), Arc::new(answer));
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let (books, answer) = (Arc::clone(&books), Arc::clone(&answer));
                thread::spawn(move || serve(stream.unwrap(), &books, &*answer));
            }
        });
        Self {
            address,
            seen,
            over,
            thread: Some(thread),
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }

    pub fn wait_for(&self, requests: usize) {
        while self.seen().requests < requests {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn serve(stream: TcpStream, books: &Mutex<Seen>, answer: &dyn Fn(usize) -> Answer) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some((head, body)) = request(&mut reader) {
        let answer = {
            let mut seen = books.lock().unwrap();
            let answer = answer(seen.requests);
            let took = !matches!(answer, Answer::RetryAfter(_));
            note(&mut seen, head, &body, took);
            answer
        };
        let mut stream = &stream;
        let _ = match answer {
            Answer::Status(status) => {
                write!(stream, "HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n")
            }
            Answer::RetryAfter(seconds) => write!(
                stream,
                "HTTP/1.1 503 x\r\nretry-after: {seconds}\r\ncontent-length: 0\r\n\r\n"
            ),
            Answer::Partial(rejected_spans) => {
                let partial = PartialSuccess {
                    rejected_spans,
                    error_message: "odd".to_string(),
                };
                let body = ExportTraceServiceResponse {
                    partial_success: Some(partial),
                }
                .encode_to_vec();
                let head = format!("HTTP/1.1 200 x\r\ncontent-length: {}\r\n\r\n", body.len());
                stream.write_all(&[head.as_bytes(), &body].concat())
            }
            Answer::Close => return,
            Answer::Nothing => {
                thread::sleep(Duration::from_secs(3));
                return;
            }
        };
    }
}

fn request(reader: &mut impl std::io::BufRead) -> Option<(String, Vec<u8>)> {
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        if let Some(text) = line.to_lowercase().strip_prefix("content-length:") {
            length = text.trim().parse().unwrap();
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    if head.to_lowercase().contains("content-encoding: gzip") {
        let mut plain = Vec::new();
        let mut decoder = flate2::read::GzDecoder::new(&body[..]);
        decoder.read_to_end(&mut plain).unwrap();
        body = plain;
    }
    Some((head, body))
}

fn note(seen: &mut Seen, head: String, body: &[u8], took: bool) {
    let request = ExportTraceServiceRequest::decode(body).unwrap();
    let places = request.resource_spans.iter();
    let spans = places
        .flat_map(|place| &place.scope_spans)
        .flat_map(|scope| &scope.spans);
    seen.requests += 1;
    seen.head = head;
    let now = Instant::now();
    let last = seen.last.replace(now);
    seen.apart.extend(last.map(|last| now - last));
    for span in spans {
        let number = Message::decode(span.clone()).unwrap().span_id;
        if took {
            seen.spans += 1;
            seen.twice += usize::from(!seen.numbers.insert(number));
        } else {
            seen.twice += usize::from(seen.numbers.contains(&number));
        }
    }
}

pub fn settings(address: SocketAddr) -> Settings {
    let endpoint = format!("http://{address}");
    Settings::new(Some(&endpoint), &|_| None).unwrap().unwrap()
}
