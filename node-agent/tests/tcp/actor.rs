//! A process that connects and listens as it is told: this very program again.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

const ROLE: &str = "CKB_PROBE_TCP_ACTOR";

/// A process, and the way to tell it what to do.
pub struct Actor {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Actor {
    /// Starts an actor that runs this very program.
    pub fn start() -> Self {
        Self::run(Command::new(std::env::current_exe().unwrap()))
    }

    /// Starts one in a network namespace.
    pub fn start_in(network: &str) -> Self {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", network]);
        command.arg(std::env::current_exe().unwrap());
        Self::run(command)
    }

    fn run(mut command: Command) -> Self {
        let mut child = command
            .args(["--exact", "actor::act", "--ignored", "--nocapture"])
            .env(ROLE, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut actor = Self {
            child,
            orders,
            answers,
        };
        actor.order("ready");
        actor
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Listens on an address, and says on which port; serves whoever comes.
    pub fn listen(&mut self, address: &str) -> u16 {
        self.order(&format!("listen {address}")).parse().unwrap()
    }

    /// The same, and serves nobody.
    pub fn hold(&mut self, address: &str) -> u16 {
        self.order(&format!("hold {address}")).parse().unwrap()
    }

    /// The same, and accepts nobody.
    pub fn idle(&mut self, address: &str) -> u16 {
        self.order(&format!("idle {address}")).parse().unwrap()
    }

    /// Tries to connect so many times, and says how often it got no answer in a twentieth of a second.
    pub fn rush(&mut self, peer: &str, times: u32) -> u64 {
        self.order(&format!("rush {peer} {times}")).parse().unwrap()
    }

    /// So many connections one after another, each with so many bytes there and back.
    pub fn talk(&mut self, peer: &str, times: u32, send: u64, receive: u64) {
        self.order(&format!("talk {peer} {times} {send} {receive}"));
    }

    /// So many connections that stay open, each with so many bytes sent.
    pub fn open(&mut self, peer: &str, times: u32, send: u64) {
        self.order(&format!("open {peer} {times} {send}"));
    }

    /// Listens on so many addresses of its own.
    pub fn listen_often(&mut self, times: u32) {
        self.order(&format!("often {times}"));
    }

    /// Closes what it has opened.
    pub fn close(&mut self) {
        self.order("close");
    }

    /// Waits until it has served so many connections to their end.
    pub fn settle(&mut self, served: u64) {
        self.order(&format!("settle {served}"));
        // The last acknowledgement is on its way.
        thread::sleep(Duration::from_millis(50));
    }

    /// Waits until so many are open of which all is received.
    pub fn settle_bytes(&mut self, waiting: u64) {
        self.order(&format!("waiting {waiting}"));
    }

    fn order(&mut self, order: &str) -> String {
        writeln!(self.orders, "{order}").unwrap();
        loop {
            let mut line = String::new();
            assert!(self.answers.read_line(&mut line).unwrap() > 0, "{order}");
            // The test harness says something too.
            if let Some((_, answer)) = line.trim_end().split_once("answer:") {
                return answer.to_string();
            }
        }
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Default)]
struct Served {
    ended: AtomicU64,
    waiting: AtomicU64,
}

#[test]
#[ignore = "what other tests start"]
fn act() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let served = Arc::new(Served::default());
    let (mut open, mut idle) = (Vec::new(), Vec::new());
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let number = |index: usize| words[index].parse::<u64>().unwrap();
        let answer = match words[0] {
            "listen" => listen(words[1], Some(served.clone())).to_string(),
            "hold" => listen(words[1], None).to_string(),
            "idle" => {
                let listener = TcpListener::bind((words[1], 0)).unwrap();
                let port = listener.local_addr().unwrap().port();
                idle.push(listener);
                port.to_string()
            }
            "rush" => {
                let peer = words[1].parse().unwrap();
                let patience = Duration::from_millis(50);
                let mut failed = 0;
                for _ in 0..number(2) {
                    match TcpStream::connect_timeout(&peer, patience) {
                        Ok(peer) => open.push(peer),
                        Err(_) => failed += 1,
                    }
                }
                failed.to_string()
            }
            "talk" => {
                for _ in 0..number(2) {
                    let mut peer = begin(words[1], number(3), number(4));
                    take(&mut peer, number(4));
                    peer.shutdown(std::net::Shutdown::Write).unwrap();
                    assert_eq!(peer.read(&mut [0]).unwrap(), 0);
                }
                String::new()
            }
            "open" => {
                for _ in 0..number(2) {
                    open.push(match number(3) {
                        0 => TcpStream::connect(words[1]).unwrap(),
                        send => begin(words[1], send, 0),
                    });
                }
                String::new()
            }
            "often" => {
                for address in 0..number(1) as u32 {
                    let address = std::net::Ipv4Addr::from(0x7f40_0000 + address);
                    idle.push(TcpListener::bind((address, 18_115)).unwrap());
                }
                String::new()
            }
            "close" => {
                open.clear();
                String::new()
            }
            "settle" => {
                wait(&served.ended, number(1));
                String::new()
            }
            "waiting" => {
                wait(&served.waiting, number(1));
                String::new()
            }
            _ => String::new(),
        };
        println!("answer:{answer}");
    }
}

fn wait(count: &AtomicU64, for_as_many: u64) {
    while count.load(Ordering::SeqCst) < for_as_many {
        thread::sleep(Duration::from_millis(5));
    }
}

fn begin(peer: &str, send: u64, receive: u64) -> TcpStream {
    let mut peer = TcpStream::connect(peer).unwrap();
    peer.write_all(&send.to_be_bytes()).unwrap();
    peer.write_all(&receive.to_be_bytes()).unwrap();
    peer.write_all(&vec![b'x'; send as usize]).unwrap();
    peer
}

fn take(from: &mut TcpStream, bytes: u64) {
    let mut taken = vec![0; bytes as usize];
    from.read_exact(&mut taken).unwrap();
}

fn listen(address: &str, serve: Option<Arc<Served>>) -> u16 {
    let listener = TcpListener::bind((address, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut held = Vec::new();
        for peer in listener.incoming() {
            let mut peer = peer.unwrap();
            let Some(served) = serve.clone() else {
                held.push(peer);
                continue;
            };
            thread::spawn(move || {
                let mut header = [[0; 8]; 2];
                for number in &mut header {
                    peer.read_exact(number).unwrap();
                }
                let [receive, send] = header.map(u64::from_be_bytes);
                take(&mut peer, receive);
                peer.write_all(&vec![b'y'; send as usize]).unwrap();
                if send == 0 {
                    served.waiting.fetch_add(1, Ordering::SeqCst);
                }
                assert_eq!(peer.read(&mut [0]).unwrap(), 0);
                drop(peer);
                served.ended.fetch_add(1, Ordering::SeqCst);
            });
        }
    });
    port
}
