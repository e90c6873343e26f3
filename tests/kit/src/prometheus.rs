//! A real Prometheus, which scrapes a page that is made for it, and keeps the exemplars on it.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, sleep},
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{PATIENCE, collector::free};

/// It ends when this is dropped.
#[derive(Debug)]
pub struct Prometheus {
    _folder: TempDir,
    address: SocketAddr,
    child: Child,
}

impl Prometheus {
    /// Starts one that scrapes this page, which is told as of this type, and waits until it has.
    ///
    /// # Panics
    /// When it does not start, or does not take the page: with what it says to that.
    pub fn of_page(page: String, media_type: &'static str) -> Self {
        Self::of_pages(move |_| page.clone(), media_type)
    }

    /// The same of a page that is another each time: it is made of how often it has been scraped.
    ///
    /// # Panics
    /// As [`Self::of_page`].
    pub fn of_pages(
        page: impl Fn(u64) -> String + Send + Sync + 'static,
        media_type: &'static str,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap();
        let (page, scrapes) = (Arc::new(page), Arc::new(AtomicU64::new(0)));
        // It ends with the tests.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let page = Arc::clone(&page);
                let before = scrapes.fetch_add(1, Ordering::Relaxed);
                thread::spawn(move || tell(stream, &page(before), media_type));
            }
        });
        let folder = TempDir::with_prefix("ckb-probe-prometheus-").unwrap();
        let (config, address) = (folder.path().join("prometheus.yml"), free());
        let scraped = format!(
            "scrape_configs:\n- {{job_name: page, honor_labels: true, scrape_interval: 1s, scrape_timeout: 1s, static_configs: [{{targets: \
             ['{target}']}}]}}\n"
        );
        fs::write(&config, scraped).unwrap();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--enable-feature=exemplar-storage")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = child
            .unwrap_or_else(|error| panic!("prometheus: {error}: scripts/setup.sh installs it"));
        let prometheus = Self {
            _folder: folder,
            address,
            child,
        };
        let until = Instant::now() + PATIENCE;
        loop {
            let targets = prometheus.get("/api/v1/targets");
            let target = &targets["data"]["activeTargets"][0];
            match target["health"].as_str() {
                Some("up") => return prometheus,
                Some("down") => panic!("{}", target["lastError"]),
                _ => assert!(Instant::now() < until, "{targets}"),
            }
            sleep(Duration::from_millis(100));
        }
    }

    /// Starts one that has kept this page of OpenMetrics, whose samples say when they were, and scrapes nothing.
    ///
    /// # Panics
    /// When the page is none, or it does not start.
    pub fn of_history(page: &str) -> Self {
        let prometheus = Self::of_history_behind(page, "");
        let until = Instant::now() + PATIENCE;
        while prometheus.query("1").is_err() {
            assert!(Instant::now() < until, "prometheus does not answer");
            sleep(Duration::from_millis(100));
        }
        prometheus
    }

    /// The same, which is served as this configuration for the web says (`--web.config.file`): with TLS, to whom it knows. It may not answer yet.
    ///
    /// # Panics
    /// When the page is none, or it does not start.
    pub fn of_history_behind(page: &str, web: &str) -> Self {
        let folder = TempDir::with_prefix("ckb-probe-prometheus-").unwrap();
        let (config, address) = (folder.path().join("prometheus.yml"), free());
        let (written, data) = (folder.path().join("page"), folder.path().join("data"));
        let served = folder.path().join("web.yml");
        fs::write(&config, "scrape_configs: []\n").unwrap();
        fs::write(&served, web).unwrap();
        fs::write(&written, page).unwrap();
        let made = Command::new("promtool")
            .args(["tsdb", "create-blocks-from", "openmetrics"])
            .args([&written, &data])
            .output()
            .unwrap_or_else(|error| panic!("promtool: {error}: scripts/setup.sh installs it"));
        assert!(made.status.success(), "{made:?}");
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .arg(format!("--web.listen-address={address}"))
            .arg(format!("--web.config.file={}", served.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            _folder: folder,
            address,
            child,
        }
    }

    /// Where it answers.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The exemplars of all series that a selector selects: each with the labels of its series.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn exemplars(&self, selector: &str) -> Vec<(Value, Value)> {
        let path = format!("/api/v1/query_exemplars?query={selector}&start=0&end=9999999999");
        let answer = self.get(&path);
        assert_eq!(answer["status"], "success", "{answer}");
        let series = answer["data"].as_array().into_iter().flatten();
        let all = series.flat_map(|series| {
            let exemplars = series["exemplars"].as_array().into_iter().flatten();
            exemplars.map(|one| (series["seriesLabels"].clone(), one.clone()))
        });
        all.collect()
    }

    /// What a query gives now: each series' labels and its number. Or why it gives nothing.
    ///
    /// # Errors
    /// With Prometheus' words, where it cannot read the query.
    pub fn query(&self, query: &str) -> Result<Vec<(Value, f64)>, String> {
        let answer = self.get(&format!("/api/v1/query?query={}", encoded(query)));
        if answer["status"] != "success" {
            return Err(answer.to_string());
        }
        let series = answer["data"]["result"].as_array().into_iter().flatten();
        let values = series.map(|series| {
            let number = series["value"][1]
                .as_str()
                .and_then(|text| text.parse().ok());
            (series["metric"].clone(), number.unwrap_or(f64::NAN))
        });
        Ok(values.collect())
    }

    /// What it answers to a query of a range, with these times in seconds since 1970, as it says it.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn range(&self, query: &str, (from, to): (u64, u64), step: u64) -> String {
        let query = encoded(query);
        let path = format!("/api/v1/query_range?query={query}&start={from}&end={to}&step={step}");
        self.text(&path).unwrap()
    }

    /// Null until it answers.
    fn get(&self, path: &str) -> Value {
        let answer = self.text(path);
        let answer = answer.and_then(|text| serde_json::from_str(&text).ok());
        answer.unwrap_or_default()
    }

    /// None until it answers.
    fn text(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        Some(body.to_owned())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn encoded(text: &str) -> String {
    let letters = text.bytes().map(|letter| match letter {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => char::from(letter).to_string(),
        _ => format!("%{letter:02X}"),
    });
    letters.collect()
}

fn tell(mut stream: TcpStream, page: &str, media_type: &str) {
    let mut request = [0; 4096];
    let _ = stream.read(&mut request);
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        page.len()
    );
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(page.as_bytes());
}
