//! PostgreSQL, which `scripts/setup.sh unit` installs: a cluster of its own, which goes with the test.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use ckb_probe_testkit::{Folder, run, wait_until};

use super::{BTreeMap, Rows, attached, listed};

pub(super) const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";

/// One that runs in a folder, and is stopped when it is dropped.
struct Server {
    folder: Folder,
}

/// It does not run as root.
pub(super) fn as_postgres(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
    command.arg(Path::new(PROGRAMS).join(program));
    command.current_dir("/");
    command
}

impl Server {
    fn start() -> Self {
        let folder = Folder::new();
        run(Command::new("chown").arg("postgres:").arg(folder.root()));
        let server = Self { folder };
        let data = server.data();
        run(as_postgres("initdb")
            .args(["--no-sync", "-A", "trust", "-D"])
            .arg(&data));
        let quiet = format!(
            "listen_addresses=''\nunix_socket_directories='{}'\nfsync=off\nautovacuum=off\n",
            server.folder.root().display()
        );
        let settings = data.join("postgresql.conf");
        let known = fs::read_to_string(&settings).unwrap();
        fs::write(&settings, known + &quiet).unwrap();
        let log = server.folder.path("log");
        run(as_postgres("pg_ctl")
            .args(["start", "-w", "-D"])
            .args([&data, Path::new("-l"), &log])
            .stdout(Stdio::null()));
        server
    }

    fn data(&self) -> PathBuf {
        self.folder.path("data")
    }

    fn client(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = as_postgres(program);
        command.arg("-h").arg(self.folder.root()).args(arguments);
        command
    }

    fn ask(&self, query: &str) -> String {
        let answer = run(&mut self.client("psql", &["-Atqc", query, "postgres"]));
        let answer = String::from_utf8(answer.stdout).unwrap();
        answer.trim().to_string()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut stop = as_postgres("pg_ctl");
        stop.args(["stop", "-m", "immediate", "-D"])
            .arg(self.data());
        drop(stop.output());
    }
}

/// A client that waits for a lock that another one has.
struct Held(Child);

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

const TRANSACTIONS: u64 = 500;

/// Has pgbench make its transactions, and tells what was counted in the process that serves it, which had begun the first.
fn while_benched(question: &[&str]) -> Rows {
    assert!(
        Path::new(PROGRAMS).join("postgres").exists(),
        "scripts/setup.sh unit installs PostgreSQL 15"
    );
    let server = Server::start();
    let all = listed(&["--file", &format!("{PROGRAMS}/postgres")]);
    assert_eq!(all.last().unwrap(), "57 probes of postgresql, at 71 places");
    // A lock keeps pgbench at the first statement until all is attached.
    let mut holder = Held(
        server
            .client("psql", &["-q", "postgres"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let mut orders = holder.0.stdin.take().unwrap();
    std::io::Write::write_all(&mut orders, b"SELECT pg_advisory_lock(7);\n").unwrap();
    wait_until("the lock is held", || {
        server.ask("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted") == "1"
    });
    let script = server.folder.path("script");
    fs::write(&script, "SELECT pg_advisory_lock_shared(7);\n").unwrap();
    let transactions = TRANSACTIONS.to_string();
    let arguments = [
        "-n",
        "-c",
        "1",
        "-t",
        &transactions,
        "-f",
        script.to_str().unwrap(),
        "postgres",
    ];
    let bench = server
        .client("pgbench", &arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let waiting = "SELECT pid FROM pg_stat_activity WHERE application_name = 'pgbench' AND wait_event_type = 'Lock'";
    wait_until("pgbench waits", || !server.ask(waiting).is_empty());
    let backend: u32 = server.ask(waiting).parse().unwrap();
    let asked = [&["--provider", "postgresql"], question].concat();
    let probe = attached(backend, &asked);
    std::io::Write::write_all(&mut orders, b"SELECT pg_advisory_unlock(7);\n").unwrap();
    let output = bench.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let expected =
        format!("number of transactions actually processed: {TRANSACTIONS}/{TRANSACTIONS}");
    assert!(said.contains(&expected), "{said}");
    probe.rows().0
}

#[test]
fn each_transaction_of_pgbench_is_counted_in_the_process_that_serves_it() {
    let names =
        "transaction__commit,transaction__start,transaction__abort,query__start,query__done";
    let rows = while_benched(&["--names", names]);
    // The first transaction and its query had begun.
    let counts = [
        ("query__done", TRANSACTIONS),
        ("query__start", TRANSACTIONS - 1),
        ("transaction__abort", 0),
        ("transaction__commit", TRANSACTIONS),
        ("transaction__start", TRANSACTIONS - 1),
    ];
    assert_eq!(rows.counts(), BTreeMap::from(counts));
}

#[test]
fn each_transaction_of_pgbench_is_timed_from_its_start_to_its_commit() {
    let rows = while_benched(&[
        "--from",
        "transaction__start",
        "--to",
        "transaction__commit,transaction__abort",
    ]);
    let row = rows.row("transaction__start to transaction__commit or transaction__abort");
    let figures = ["count", "unended", "unbegun"].map(|figure| row.figure(figure));
    // The first had begun.
    assert_eq!(figures, [TRANSACTIONS - 1, 0, 1]);
    let durations = &row.total().distributions["duration"];
    assert_eq!(durations.histogram.count(), TRANSACTIONS - 1);
    // Each has a lock to take, and takes it at once.
    assert!((1_000..100_000_000).contains(&row.quantile(0.5)));
}

#[test]
fn each_query_of_pgbench_is_counted_with_its_text() {
    let rows = while_benched(&["--names", "query__start", "--by-argument", "1:string"]);
    let queries = rows.row("query__start").parts("count");
    let query = "\"SELECT pg_advisory_lock_shared(7);\"";
    assert_eq!(queries, BTreeMap::from([(query, TRANSACTIONS - 1)]));
}
