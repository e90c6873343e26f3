//! PostgreSQL as a container has it: in a mount namespace and a root of its own, with an executable that nobody else has. One process, which
//! is told its statements on standard input, so that all of its transactions are known.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use super::{
    BTreeMap, attached, listed,
    postgresql::{PROGRAMS, as_postgres},
};
use ckb_probe_testkit::{Folder, run};

/// Where it is in its own root, and nowhere else.
const EXECUTABLE: &str = "/database/bin/server";

/// Enters a namespace and a root of its own, with the system's libraries, and becomes the server.
const ENTER: &str = r#"
set -e
mount -t tmpfs none "$0"
cd "$0"
mkdir -p usr etc dev proc data host database/bin
for shared in usr etc dev proc; do mount --rbind /$shared $shared; done
mount --bind "$1" data
ln -s usr/lib lib
ln -s usr/lib64 lib64
ln -s usr/bin bin
cp "$2"/postgres ."$3"
PATH=$PATH:/usr/sbin
# As a container's runtime does: nothing of the host's root is left.
pivot_root . host
cd /
umount --lazy /host
exec setpriv --reuid=postgres --regid=postgres --clear-groups "$3" --single -D /data postgres
"#;

/// A server without clients. What it has in files is only its own, and goes with it.
struct Confined {
    server: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    _folder: Folder,
}

impl Confined {
    fn start() -> Self {
        let folder = Folder::new();
        run(Command::new("chown").arg("postgres:").arg(folder.root()));
        let (data, root) = (folder.path("data"), folder.path("root"));
        run(as_postgres("initdb")
            .args(["--no-sync", "-A", "trust", "-D"])
            .arg(&data));
        std::fs::create_dir(&root).unwrap();
        let mut server = Command::new("unshare");
        server.args(["--mount", "sh", "-c", ENTER]).arg(&root);
        server.arg(&data).args([PROGRAMS, EXECUTABLE]);
        server.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = server.stderr(Stdio::null()).spawn().unwrap();
        let mut started = Self {
            orders: server.stdin.take().unwrap(),
            answers: BufReader::new(server.stdout.take().unwrap()),
            server,
            _folder: folder,
        };
        started.ask(1);
        started
    }

    /// Has it make so many transactions, of a statement each.
    fn ask(&mut self, transactions: usize) {
        let statements = "SELECT 7\n".repeat(transactions - 1) + "SELECT 'over'\n";
        self.orders.write_all(statements.as_bytes()).unwrap();
        self.orders.flush().unwrap();
        let mut answers = self.answers.by_ref().lines();
        assert!(answers.any(|line| line.unwrap().contains("= \"over\"")));
        // It is committed before the next prompt.
        self.answers.read_until(b'>', &mut Vec::new()).unwrap();
    }
}

impl Drop for Confined {
    fn drop(&mut self) {
        drop(self.server.kill());
        drop(self.server.wait());
    }
}

#[test]
fn what_a_container_alone_has_is_listed_and_counted_to_the_last() {
    let mut database = Confined::start();
    let pid = database.server.id();
    assert!(!std::path::Path::new(EXECUTABLE).exists());
    let own = std::fs::read_link("/proc/self/ns/mnt").unwrap();
    let its = std::fs::read_link(format!("/proc/{pid}/ns/mnt")).unwrap();
    assert_ne!(own, its);

    let of_process = listed(&["--pid", &pid.to_string()]);
    assert_eq!(of_process[0], format!("process {pid} (server)"));
    let file = &of_process[1];
    let paths = [
        format!("/proc/{pid}/root{EXECUTABLE}"),
        format!("/proc/{pid}/exe"),
    ];
    assert!(paths.contains(file), "{file}");
    let sites = of_process
        .iter()
        .filter(|line| line.starts_with("postgresql:"));
    assert_eq!(sites.count(), 71);

    let names = "transaction__*,query__start,query__done,query__parse__start";
    let probe = attached(pid, &["--provider", "postgresql", "--names", names]);
    database.ask(500);
    let counts = [
        ("query__done", 500),
        ("query__parse__start", 500),
        ("query__start", 500),
        ("transaction__abort", 0),
        ("transaction__commit", 500),
        ("transaction__start", 500),
    ];
    let (rows, _) = probe.rows();
    assert_eq!(rows.counts(), BTreeMap::from(counts));
}
