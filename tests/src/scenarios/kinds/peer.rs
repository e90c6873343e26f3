//! A peer in the target's network namespace.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddrV4, TcpStream},
    os::fd::AsFd as _,
};

use rustix::{
    net::{AddressFamily, SocketType, bind, connect, socket},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

use crate::scenarios::prelude::*;

/// The target answers sooner, or not at all.
const PATIENCE: Duration = Duration::from_secs(10);

/// What every node answers.
const QUESTION: &str = r#"{"id":1,"jsonrpc":"2.0","method":"get_tip_block_number","params":[]}"#;

/// Payload bytes that were exchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Exchanged {
    /// To the target.
    pub asked: u64,
    /// By the target.
    pub answered: u64,
}

/// Runs something in the network namespace of a process, on a thread of its own.
pub async fn beside<T: Send + 'static>(
    target: Process,
    play: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (sender, result) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let what = "the target's network namespace";
        let entered = File::open(format!("/proc/{}/ns/net", target.pid)).and_then(|namespace| {
            let network = Some(LinkNameSpaceType::Network);
            Ok(move_into_link_name_space(namespace.as_fd(), network)?)
        });
        let played = entered.map_err(Failure::system(what)).and_then(|()| play());
        // Nobody listens any more where the test has been interrupted.
        let _ = sender.send(played);
    });
    result.await.map_err(Failure::format("a peer"))?
}

/// Connects to a port of this namespace, from an address that nobody else uses.
pub fn connected(from: Ipv4Addr, port: u16) -> Result<TcpStream> {
    let what = || format!("a connection from {from} to port {port}");
    let connected = || -> std::io::Result<TcpStream> {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        bind(&socket, &SocketAddrV4::new(from, 0))?;
        connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    };
    connected().map_err(Failure::system(what()))
}

/// Asks, and reads the answer to the connection's end.
pub fn ask(mut stream: TcpStream) -> Result<Exchanged> {
    let mut exchange = || -> std::io::Result<Exchanged> {
        let request = format!(
            "POST / HTTP/1.1\r\nHost: node\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{QUESTION}",
            QUESTION.len()
        );
        stream.write_all(request.as_bytes())?;
        let answered = stream.read_to_end(&mut Vec::new())?;
        Ok(Exchanged {
            asked: request.len() as u64,
            answered: answered as u64,
        })
    };
    exchange().map_err(Failure::system("an answer"))
}

impl std::ops::AddAssign for Exchanged {
    fn add_assign(&mut self, other: Self) {
        self.asked += other.asked;
        self.answered += other.answered;
    }
}
