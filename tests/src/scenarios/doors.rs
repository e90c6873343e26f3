//! A thousand connections from an ordinary pod, half-open and slow, to agent and operator: nobody else notices.

use std::{
    env,
    io::Write as _,
    net::{SocketAddr, TcpStream},
    os::fd::AsFd as _,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::prelude::*;
use crate::{cluster::container_status, metrics};

/// How many connections there are at a time.
const CONNECTIONS: usize = 1_000;

/// For how long, unless `CKB_PROBE_FLOOD_SECONDS` says otherwise.
const SECONDS: u64 = 12;

/// What the project promises.
const SCRAPE: Duration = Duration::from_secs(5);
const MEGABYTES: f64 = 4.0;

/// What the kubelet grants.
const LIVENESS: Duration = Duration::from_secs(3);

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let target = scene.demo().await?;
    let agent = scene.cluster.agent().await?;
    let operator = scene.cluster.operator().await?;
    flooded(scene, target.process, "agent", &agent).await?;
    flooded(scene, target.process, "operator", &operator).await
}

async fn flooded(scene: &Scene<'_>, from: Process, who: &str, component: &Component) -> Result<()> {
    // What a first scrape needs is not what is measured.
    component.scrape().await?;
    let before = component.process.memory()?.resident;
    let restarts = restarts(scene, who, component).await?;
    let flood = Flood::start(from, &[&component.address, &component.health])?;
    let began = Instant::now();
    let lasts = env::var("CKB_PROBE_FLOOD_SECONDS").ok();
    let lasts = lasts.and_then(|seconds| seconds.parse().ok());
    let lasts = Duration::from_secs(lasts.unwrap_or(SECONDS));
    let (mut scrape, mut liveness, mut most) = (Duration::ZERO, Duration::ZERO, before);
    while began.elapsed() < lasts {
        let asked = Instant::now();
        component.scrape().await?;
        scrape = scrape.max(asked.elapsed());
        let asked = Instant::now();
        metrics::get(&component.health, "/healthz").await?;
        liveness = liveness.max(asked.elapsed());
        most = most.max(component.process.memory()?.resident);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let opened = flood.stop();
    scene.figure(
        &format!("connections opened to the {who}"),
        opened,
        "",
        Bound::AtLeast(CONNECTIONS as f64),
    );
    scene.seconds(&format!("longest scrape of the {who}"), scrape, SCRAPE);
    scene.seconds(
        &format!("longest wait for liveness of the {who}"),
        liveness,
        LIVENESS,
    );
    scene.figure(
        &format!("memory that the {who} took more"),
        most.saturating_sub(before) as f64 / 1e6,
        "MB",
        Bound::AtMost(MEGABYTES),
    );
    let restarted = self::restarts(scene, who, component).await? - restarts;
    scene.equal(&format!("restarts of the {who}"), restarted, 0);
    Ok(())
}

async fn restarts(scene: &Scene<'_>, container: &str, component: &Component) -> Result<u64> {
    let pod = scene.cluster.api::<Pod>(SYSTEM).get(&component.pod).await?;
    let status = container_status(&pod, container);
    Ok(status.map_or(0, |status| status.restart_count.unsigned_abs().into()))
}

/// Those who open connections and hold them.
struct Flood {
    stop: Arc<AtomicBool>,
    opened: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Flood {
    /// Begins, from the network of a process; half of them to each address.
    fn start(from: Process, to: &[&str]) -> Result<Self> {
        let network = format!("/proc/{}/ns/net", from.pid);
        let network = fs::File::open(&network).map_err(Failure::system(network))?;
        let to: Vec<SocketAddr> = to
            .iter()
            .map(|address| address.parse().map_err(Failure::format("an address")))
            .collect::<Result<_>>()?;
        let stop = Arc::new(AtomicBool::new(false));
        let opened = Arc::new(AtomicU64::new(0));
        let (told, count) = (stop.clone(), opened.clone());
        // A thread of its own: it stays in that network.
        let thread = std::thread::spawn(move || {
            let kind = Some(LinkNameSpaceType::Network);
            if move_into_link_name_space(network.as_fd(), kind).is_ok() {
                hold(&to, &told, &count);
            }
        });
        Ok(Self {
            stop,
            opened,
            thread,
        })
    }

    /// Ends it, and says how many were opened in all.
    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.join();
        self.opened.load(Ordering::Relaxed)
    }
}

/// Opens connection after connection, and keeps the newest. Some say nothing, some half of what there is to say, and some ask for all
/// and read none of it.
fn hold(to: &[SocketAddr], stop: &AtomicBool, opened: &AtomicU64) {
    const WORDS: [&str; 3] = [
        "",
        "GET /metrics HT",
        "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
    ];
    let mut held = Vec::with_capacity(CONNECTIONS);
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let address = to[number % to.len()];
        let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) else {
            continue;
        };
        opened.fetch_add(1, Ordering::Relaxed);
        // One that was cut off already may refuse it.
        let _ = stream.write_all(WORDS[number / to.len() % WORDS.len()].as_bytes());
        if held.len() < CONNECTIONS {
            held.push(stream);
        } else {
            held[number % CONNECTIONS] = stream;
            // As many again every second: an attack on the memory, not on the processor.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
