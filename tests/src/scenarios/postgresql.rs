//! PostgreSQL 15 in pods: a server under pgbench, of which the command line counts what the process does that serves it, and a CkbProbe the
//! postmaster, which does none of it; and a process by itself, of which a CkbProbe counts each statement.

use std::{
    fs::File,
    io::Write as _,
    os::unix::fs::FileExt as _,
    path::Path,
    process::{Output, Stdio},
};

use procfs::process::{self as proc, MMPermissions, MMapPath};
use rustix::process::Pid;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use super::prelude::*;

/// Its image, which tests/workload/image.sh makes.
const IMAGE: &str = "registry.local/ckb-probe/postgresql:dev";

/// Where Debian has its programs; in the image they are at the same place.
const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";

const EXECUTABLE: &str = "postgres";
const CONTAINER: &str = "postgresql";

/// A server, and one that serves nobody and does what it reads: the two ways to run it.
const SERVER: &str = "server";
const SINGLE: &str = "single";

/// What is asked for.
const NAMES: [&str; 5] = [
    "query__done",
    "query__start",
    "transaction__abort",
    "transaction__commit",
    "transaction__start",
];

/// All probes that it has, as docs/usdt.md says.
const LISTED: &str = "57 probes of postgresql, at 71 places";

/// What pgbench does.
const TRANSACTIONS: u64 = 500;

/// Statements of the other one: those that work, and those that do not.
const STATEMENTS: u64 = 321;
const FAILURES: u64 = 7;

/// Until a pod runs.
const START: Duration = Duration::from_secs(90);

/// Until semaphores are back at zero, once the CkbProbe is deleted.
const FREED: Duration = Duration::from_secs(10);

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    for name in [SERVER, SINGLE] {
        scene.cluster.apply(&pod(scene, name)).await?;
    }
    let server = running(scene, SERVER).await?;
    let single = running(scene, SINGLE).await?;
    let spec = json!({
        "target": {
            "selector": { "matchLabels": { "app": CONTAINER } },
            "executable": EXECUTABLE,
        },
        "overhead": { "onBreach": "Report" },
        "reportInterval": "2s",
        "probes": [{ "name": "statements", "usdt": { "provider": "postgresql", "names": NAMES } }],
    });
    let spec = ckb_probe(&scene.namespace, PROBE, &spec);
    scene.apply_probe(spec).await?;
    scene
        .status("both to be attached", ATTACH, |status| {
            let attached = status.targets.attached;
            expect(attached == 2, "two attached targets", || attached)
        })
        .await?;
    let mut semaphores = Semaphores::default();
    for process in [server, single] {
        semaphores.add(process).await?;
    }
    scene.equal("semaphores raised", semaphores.raised()?, 2 * NAMES.len());

    let client = bench(scene, server).await?;
    // What is forked of a process may have its semaphores as they are then, and must not keep them.
    semaphores.add(client.process).await?;
    statements(scene, single).await?;

    scene.delete_probe(PROBE).await?;
    let since = Instant::now();
    wait::closely("the semaphores", FREED * 4, async || {
        let raised = semaphores.raised()?;
        expect(raised == 0, "no semaphore raised", || raised)
    })
    .await?;
    scene.seconds("until all semaphores are at zero", since.elapsed(), FREED);
    client.end().await
}

/// A pod that runs it, in one of the two ways.
fn pod(scene: &Scene<'_>, name: &str) -> Value {
    let (first, last): (&[&str], &[&str]) = match name {
        SERVER => (&[], &["-k", "/data", "-c", "listen_addresses="]),
        _ => (&["--single"], &["postgres"]),
    };
    let common = "-D /data/cluster -F -B 1MB -c autovacuum=off";
    let common: Vec<&str> = common.split(' ').collect();
    let arguments = [first, &common[..], last].concat();
    let restricted = json!({
        "readOnlyRootFilesystem": true,
        "allowPrivilegeEscalation": false,
        "capabilities": { "drop": ["ALL"] },
    });
    let data = json!([{ "name": "data", "mountPath": "/data" }]);
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": scene.namespace,
            "labels": { "app": CONTAINER },
        },
        "spec": {
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 1,
            "initContainers": [{
                "name": "data",
                "image": IMAGE,
                "imagePullPolicy": "IfNotPresent",
                "command": ["/usr/bin/tar", "--extract", "--file=/cluster.tar", "--directory=/data"],
                "securityContext": restricted,
                "volumeMounts": data,
            }],
            "containers": [{
                "name": CONTAINER,
                "image": IMAGE,
                "imagePullPolicy": "IfNotPresent",
                "stdin": true,
                "command": [format!("{PROGRAMS}/{EXECUTABLE}")],
                "args": arguments,
                "securityContext": restricted,
                "volumeMounts": data,
            }],
            "securityContext": {
                "runAsNonRoot": true,
                "runAsUser": 65532,
                "runAsGroup": 65532,
                "fsGroup": 65532,
                "seccompProfile": { "type": "RuntimeDefault" },
            },
            "volumes": [{ "name": "data", "emptyDir": { "sizeLimit": "256Mi" } }],
        },
    })
}

async fn running(scene: &Scene<'_>, pod: &str) -> Result<Process> {
    let cluster = scene.cluster;
    wait::until("PostgreSQL to run", START, async || {
        let of = cluster.process(&scene.namespace, pod, CONTAINER, EXECUTABLE);
        of.await
    })
    .await
}

/// Has pgbench make its transactions: all of them are counted in the process that serves it, and none in the one that a CkbProbe measures.
/// Another client is there still.
async fn bench(scene: &Scene<'_>, server: Process) -> Result<Client> {
    let socket = server.path("/data");
    wait::until("PostgreSQL to answer", START, async || {
        ask(&socket, "SELECT 1").await
    })
    .await?;
    // A lock keeps pgbench at the first statement until all is attached.
    let mut holder = Client::of(&socket, server).await?;
    holder.tell("SELECT pg_advisory_lock(7);").await?;
    wait::until("the lock to be held", ATTACH, async || {
        let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted";
        let held = ask(&socket, held).await?;
        expect(held == "1", "a lock", || held)
    })
    .await?;
    let script = tempfile::NamedTempFile::new().map_err(Failure::system("a temporary file"))?;
    fs::write(script.path(), "SELECT pg_advisory_lock_shared(7);\n")
        .map_err(Failure::at(script.path()))?;
    let (transactions, path) = (TRANSACTIONS.to_string(), script.path().to_string_lossy());
    let arguments = [
        "-n",
        "-c",
        "1",
        "-t",
        &*transactions,
        "-f",
        &*path,
        "postgres",
    ];
    let bench = client(&socket, "pgbench", &arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(Failure::system("pgbench"))?;
    let backend = wait::until("pgbench to wait", ATTACH, async || backend(server, waits));
    let counting = Counting::begin(backend.await?).await?;
    holder.tell("SELECT pg_advisory_unlock(7);").await?;
    let output = ended("pgbench", bench).await?;
    let said = String::from_utf8_lossy(&output.stdout);
    let all = format!("number of transactions actually processed: {TRANSACTIONS}/{TRANSACTIONS}");
    expect(said.contains(&all), all, || &said)?;
    let counts = counting.end().await?;
    // The first transaction and its query had begun.
    let begun = TRANSACTIONS - 1;
    for (name, expected) in NAMES
        .into_iter()
        .zip([TRANSACTIONS, begun, 0, TRANSACTIONS, begun])
    {
        let count = counts.get(name).copied().unwrap_or_default();
        scene.equal(&format!("{name} of pgbench's process"), count, expected);
    }
    Ok(holder)
}

/// Has the other one carry out statements: the CkbProbe tells of each, and of nothing that the postmaster's processes did.
async fn statements(scene: &Scene<'_>, single: Process) -> Result<()> {
    let works = "SELECT 1;\n".repeat(STATEMENTS as usize);
    let fails = "SELECT 1/0;\n".repeat(FAILURES as usize);
    let input = format!("/proc/{}/fd/0", single.pid);
    let pipe = fs::OpenOptions::new().write(true).open(&input);
    pipe.and_then(|mut pipe| pipe.write_all((works + &fails).as_bytes()))
        .map_err(Failure::system(input))?;
    let all = STATEMENTS + FAILURES;
    let expected = [STATEMENTS, all, FAILURES, STATEMENTS, all];
    let enough: u64 = expected.iter().sum();
    scene.counted(PROBE, enough).await?;
    let status = scene.now(PROBE).await?;
    for (name, expected) in NAMES.into_iter().zip(expected) {
        let count = rows::count(&rows::shown_of(&status, name)?.figures)?;
        scene.equal(&format!("{name} in the status"), count, expected);
    }
    Ok(())
}

/// A program of PostgreSQL's on this machine, as a client by the socket in a pod.
fn client(socket: &Path, program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(Path::new(PROGRAMS).join(program));
    command.args(["-U", "postgres", "-h"]).arg(socket);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

async fn ask(socket: &Path, query: &str) -> Result<String> {
    let output = client(socket, "psql", &["-Atqc", query, "postgres"]).output();
    let output = output.await.map_err(Failure::system("psql"))?;
    expect(output.status.success(), query, || format!("{output:?}"))?;
    let answer = String::from_utf8_lossy(&output.stdout);
    Ok(answer.trim().to_string())
}

/// A client that stays, and the process that serves it.
struct Client {
    psql: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    process: Process,
}

impl Client {
    async fn of(socket: &Path, server: Process) -> Result<Self> {
        let mut psql = client(socket, "psql", &["-Atq", "postgres"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(Failure::system("psql"))?;
        let orders = psql.stdin.take();
        let orders = orders.ok_or_else(|| Failure::missing("the input of psql"))?;
        let answers = psql.stdout.take();
        let answers = answers.ok_or_else(|| Failure::missing("the output of psql"))?;
        let mut client = Self {
            // Until it says who it is.
            process: server,
            psql,
            orders,
            answers: BufReader::new(answers).lines(),
        };
        // By its own word: one that served somebody before may not have gone yet, and is idle, too.
        client.tell("SELECT pg_backend_pid();").await?;
        let answer = client.answers.next_line().await;
        let answer = answer.map_err(Failure::system("psql"))?.unwrap_or_default();
        let inside: i32 = answer
            .parse()
            .map_err(|_| Failure::unexpected("the number of a process", &answer))?;
        client.process = Process::of(backend(server, |process| {
            let status = process.status().ok();
            let numbers = status.and_then(|status| status.nspid).unwrap_or_default();
            numbers.last() == Some(&inside)
        })?)?;
        Ok(client)
    }

    async fn tell(&mut self, order: &str) -> Result<()> {
        let line = format!("{order}\n");
        let told = self.orders.write_all(line.as_bytes()).await;
        told.map_err(Failure::system("psql"))
    }

    async fn end(self) -> Result<()> {
        drop(self.orders);
        ended("psql", self.psql).await.map(drop)
    }
}

async fn ended(program: &str, child: Child) -> Result<Output> {
    let output = child.wait_with_output().await;
    let output = output.map_err(Failure::system(program))?;
    expect(output.status.success(), program, || format!("{output:?}"))?;
    Ok(output)
}

/// The process that serves a client, of which this is so.
fn backend(postmaster: Process, is_so: impl Fn(&proc::Process) -> bool) -> Result<i32> {
    let all = proc::all_processes().map_err(Failure::format("/proc"))?;
    let mut backends = all.flatten().filter(|process| {
        let parent = process.stat().is_ok_and(|stat| stat.ppid == postmaster.pid);
        parent && is_so(process)
    });
    let found = backends.next();
    found
        .map(|process| process.pid)
        .ok_or_else(|| Failure::missing("a process of PostgreSQL's that serves a client"))
}

/// Whether its title says that it waits for a lock.
fn waits(process: &proc::Process) -> bool {
    let title = process.cmdline().unwrap_or_default().join(" ");
    title.contains("SELECT waiting")
}

/// The command line, which counts in one process.
struct Counting {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

/// The command line, which is beside this program.
fn command_line() -> Result<Command> {
    let own = std::env::current_exe().map_err(Failure::system("ckb-probe"))?;
    let mut command = Command::new(own.with_file_name("ckb-probe"));
    command.stdin(Stdio::null()).kill_on_drop(true);
    Ok(command)
}

impl Counting {
    /// Begins, and returns once all is attached.
    async fn begin(pid: i32) -> Result<Self> {
        let mut command = command_line()?;
        command
            .args(["usdt", "--json", "--provider", "postgresql"])
            .args(["--names", &NAMES.join(","), "--pid", &pid.to_string()])
            .args(["--on-breach", "report", "--interval", "100ms"])
            .stdout(Stdio::piped());
        let mut child = command.spawn().map_err(Failure::system("ckb-probe"))?;
        let output = child.stdout.take();
        let output = output.ok_or_else(|| Failure::missing("the output of ckb-probe"))?;
        let mut lines = BufReader::new(output).lines();
        let first = lines
            .next_line()
            .await
            .map_err(Failure::system("ckb-probe"))?;
        expect(first.is_some(), "figures of ckb-probe usdt", || "nothing")?;
        Ok(Self { child, lines })
    }

    /// Ends: the hits of each probe.
    async fn end(mut self) -> Result<BTreeMap<String, u64>> {
        let pid = self
            .child
            .id()
            .and_then(|pid| Pid::from_raw(pid.cast_signed()));
        if let Some(pid) = pid {
            let ended = rustix::process::kill_process(pid, Signal::INT);
            ended.map_err(|error| Failure::system("ckb-probe")(error.into()))?;
        }
        let mut counts = BTreeMap::new();
        while let Some(line) = self
            .lines
            .next_line()
            .await
            .map_err(Failure::system("ckb-probe"))?
        {
            let line: Value =
                serde_json::from_str(&line).map_err(Failure::format("a line of ckb-probe"))?;
            let count = line["figures"]["count"]
                .as_str()
                .and_then(|count| count.parse().ok());
            let row = line["row"].as_str();
            if let (Some(row), Some(count)) = (row, count) {
                counts.insert(row.to_string(), count);
            }
        }
        Ok(counts)
    }
}

/// The semaphores of those that are asked for, each as its process and its address there.
#[derive(Default)]
struct Semaphores(Vec<(Process, u64)>);

impl Semaphores {
    /// Adds those of a process, as the command line lists them, which is to list them all.
    async fn add(&mut self, process: Process) -> Result<()> {
        let text = list(process).await?;
        let all = text.lines().any(|line| line == LISTED);
        expect(all, LISTED, || &text)?;
        for name in NAMES {
            let begins = format!("postgresql:{name} ");
            let mut lines = text.lines();
            let line = lines.find(|line| line.trim_start().starts_with(&begins));
            let offset = line.and_then(|line| line.split_once("semaphore +0x"));
            let offset = offset.and_then(|(_, rest)| rest.split(' ').next());
            let offset = offset.and_then(|offset| u64::from_str_radix(offset, 16).ok());
            let offset = offset
                .ok_or_else(|| Failure::unexpected(format!("a semaphore of {name}"), &text))?;
            self.0.push((process, address(process, offset)?));
        }
        Ok(())
    }

    /// How many of them are not zero.
    fn raised(&self) -> Result<usize> {
        let mut raised = 0;
        for (process, address) in &self.0 {
            let path = format!("/proc/{}/mem", process.pid);
            let memory = File::open(&path).map_err(Failure::system(path.clone()))?;
            let mut value = [0; 2];
            memory
                .read_exact_at(&mut value, *address)
                .map_err(Failure::system(path))?;
            raised += usize::from(u16::from_le_bytes(value) > 0);
        }
        Ok(raised)
    }
}

/// What `ckb-probe symbols --usdt` says of a process.
async fn list(process: Process) -> Result<String> {
    let mut command = command_line()?;
    command.args(["symbols", "--usdt", "--pid", &process.pid.to_string()]);
    let output = command
        .output()
        .await
        .map_err(Failure::system("ckb-probe"))?;
    expect(output.status.success(), "a list of probes", || {
        format!("{output:?}")
    })?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Where a process has this part of the data of its executable.
fn address(process: Process, offset: u64) -> Result<u64> {
    let maps = proc::Process::new(process.pid).and_then(|process| process.maps());
    let maps = maps.map_err(Failure::format("its mappings"))?;
    let data = maps.iter().filter(|map| {
        let is_its = matches!(&map.pathname, MMapPath::Path(path) if path.ends_with(EXECUTABLE));
        is_its && map.perms.contains(MMPermissions::WRITE)
    });
    let mut found = data.filter_map(|map| {
        let address = map.address.0 + offset.checked_sub(map.offset)?;
        (address < map.address.1).then_some(address)
    });
    found
        .next()
        .ok_or_else(|| Failure::missing(format!("data at {offset:#x} of {EXECUTABLE}")))
}
