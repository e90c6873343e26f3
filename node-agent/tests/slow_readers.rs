//! Who reads metrics slowly, or not at all, costs the agent next to nothing, however large a page is.
#![allow(clippy::unwrap_used, reason = "where it panics, a test fails")]

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use ckb_probe_agent::server::{Pulse, Server, Settings};
use ckb_probe_k8s::secure::Protection;
use kube::{Client, Config};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    time::{Instant, sleep},
};

const PAGE: usize = 10 << 20;

/// As many connections as a door takes, eight of an address.
const ADDRESSES: u8 = 4;
const OF_AN_ADDRESS: u8 = 8;

/// Two pages are kept, and one is in the making; besides that, what allocators keep.
const MOST: usize = 4 * PAGE;

fn free() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap()
}

/// Asks for metrics, and reads nothing.
async fn ask(from: u8, door: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    // Little fits into the kernel's own buffers.
    socket.set_recv_buffer_size(4096).unwrap();
    let own = SocketAddr::from(([127, 0, 0, from], 0));
    socket.bind(own).unwrap();
    let mut stream = socket.connect(door).await.unwrap();
    let request = b"GET /metrics HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    stream
}

/// How much of this process's memory is there, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let words = line.unwrap().trim().trim_end_matches(" kB");
    words.parse::<usize>().unwrap() << 10
}

#[tokio::test]
async fn thirty_two_who_read_a_page_of_ten_megabytes_slowly_share_it() {
    let settings = Settings {
        metrics: free(),
        protection: Protection::default(),
        health: free(),
    };
    let client = Client::try_from(Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
    let server = Server::open(&settings, client).await.unwrap();
    let (serving, mut wanted) = server.serve(Arc::new(Pulse::default())).unwrap();
    tokio::spawn(serving);
    tokio::spawn(async move {
        while let Some(request) = wanted.recv().await {
            let _ = request.answer.send(Ok("calls 1\n".repeat(PAGE / 8)));
        }
    });
    let before = resident();
    let mut readers = Vec::new();
    for _ in 0..OF_AN_ADDRESS {
        for address in 1..=ADDRESSES {
            readers.push(ask(address, settings.metrics).await);
        }
        // Each few of another page.
        sleep(Duration::from_millis(600)).await;
    }
    // One byte of each: all were answered, whose page has not gone yet.
    let mut answered = 0;
    for reader in &mut readers {
        let mut byte = [0];
        let read = reader.read_exact(&mut byte);
        let read = tokio::time::timeout(Duration::from_secs(5), read).await;
        answered += usize::from(matches!(read, Ok(Ok(_))));
    }
    assert_eq!(answered, readers.len());
    let taken = resident().saturating_sub(before);
    println!("{} readers take {} KiB", readers.len(), taken >> 10);
    assert!(taken < MOST, "{taken} bytes");

    // And whoever reads has all of it.
    let begun = Instant::now();
    let mut text = Vec::new();
    ask(5, settings.metrics)
        .await
        .read_to_end(&mut text)
        .await
        .unwrap();
    assert!(text.len() > PAGE, "{} bytes", text.len());
    println!("a page is read in {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(20));
}
