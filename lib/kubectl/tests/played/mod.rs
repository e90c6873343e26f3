//! An API server that is played: it keeps CkbProbes, answers those that are made as an operator would, and has the objects of the tests of
//! `ckb-probe-views` besides.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex},
    thread,
};

use serde_json::{Value, json};

/// So often is a new CkbProbe looked at before it fires.
const LOOKS: u32 = 2;

/// What is there.
#[derive(Default)]
pub struct State {
    /// CkbProbes by their names, each with how often it was looked at.
    pub probes: BTreeMap<String, (Value, u32)>,
    /// The names of those that were deleted.
    pub deleted: Vec<String>,
    /// Whether a new one never fires.
    pub stuck: bool,
    /// Whether nobody may make one.
    pub forbidden: bool,
    /// What the probe lists individually.
    pub events: Option<Value>,
    /// Whether nobody may list NodeProbes.
    pub private: bool,
    /// The rows of the node's report, as it writes them.
    pub rows: Option<String>,
    /// CkbProfiles by their names.
    pub profiles: BTreeMap<String, Value>,
    /// What comes once somebody has looked for profiles so often.
    pub coming: Option<(u32, Value)>,
}

/// A running one.
pub struct Server {
    /// What it has.
    #[allow(dead_code, reason = "not each test looks at it")]
    pub state: Arc<Mutex<State>>,
    /// How to get at it.
    pub kubeconfig: PathBuf,
}

impl Server {
    /// Starts one that has the CkbProbe `steady`, on which all is well.
    pub fn start() -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let mut steady = object("ckbprobe");
        steady["metadata"]["name"] = json!("steady");
        state
            .lock()
            .unwrap()
            .probes
            .insert("steady".to_owned(), (steady, LOOKS));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, state) = (stream.unwrap(), Arc::clone(&shared));
                thread::spawn(move || serve(&stream, &state));
            }
        });
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster": { "server": format!("http://{address}") } }],
            "users": [{ "name": "u", "user": {} }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u", "namespace": "e2e-soak" } }],
        });
        let name = format!("kubeconfig-{}", address.port());
        let kubeconfig = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::write(&kubeconfig, config.to_string()).unwrap();
        Self { state, kubeconfig }
    }

    /// The plugin, for it.
    pub fn plugin(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-ckbprobe"));
        command.env("KUBECONFIG", &self.kubeconfig);
        command
    }
}

/// An object of the tests of what is decided, with the times of now.
fn object(name: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../views/src/diagnosis/tests/objects");
    let text = fs::read_to_string(folder.join(format!("{name}.yaml"))).unwrap();
    let mut object: Value = serde_yaml::from_str(&text).unwrap();
    let now = k8s_openapi::jiff::Timestamp::now();
    for (place, time) in [
        ("/spec/renewTime", format!("{now:.6}")),
        ("/status/lastReportTime", format!("{now:.0}")),
        ("/status/reportedAt", format!("{now:.6}")),
    ] {
        if let Some(place) = object.pointer_mut(place) {
            *place = json!(time);
        }
    }
    object
}

fn list(items: Vec<Value>) -> (u16, Value) {
    let metadata = json!({ "resourceVersion": "1" });
    (
        200,
        json!({ "kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items }),
    )
}

fn refusal(code: u16, reason: &str, message: &str) -> (u16, Value) {
    let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message });
    (code, status)
}

const PROBES: &str = "/apis/ckbprobe.dev/v1alpha1/namespaces/e2e-soak/ckbprobes";

const PROFILES: &str = "/apis/ckbprobe.dev/v1alpha1/namespaces/e2e-soak/ckbprofiles";

/// What there is of them with these labels, without what is in them.
fn profiles(query: &str, state: &mut State) -> (u16, Value) {
    if let Some((looks, profile)) = state.coming.take() {
        match looks {
            0 => {
                let name = profile["metadata"]["name"].as_str().unwrap().to_owned();
                state.profiles.insert(name, profile);
            }
            looks => state.coming = Some((looks - 1, profile)),
        }
    }
    let query = query
        .replace("%2F", "/")
        .replace("%3D", "=")
        .replace("%2C", ",");
    let asked = query
        .split('&')
        .find_map(|one| one.strip_prefix("labelSelector="));
    let labels: Vec<(&str, &str)> = asked
        .unwrap_or_default()
        .split(',')
        .filter_map(|one| one.split_once('='))
        .collect();
    let has = |profile: &&Value| {
        let mut labels = labels.iter();
        labels.all(|(key, value)| profile["metadata"]["labels"][key] == json!(value))
    };
    let found = state.profiles.values().filter(has);
    let items: Vec<Value> = found
        .map(|one| json!({ "metadata": one["metadata"] }))
        .collect();
    let list = json!({
        "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "items": items,
    });
    (200, list)
}

fn answer(method: &str, path: &str, body: &Value, state: &Mutex<State>) -> (u16, Value) {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let mut state = state.lock().unwrap();
    match (method, path) {
        ("GET", "/version") => {
            let version = [
                "major",
                "minor",
                "gitVersion",
                "gitCommit",
                "gitTreeState",
                "buildDate",
                "goVersion",
                "compiler",
                "platform",
            ];
            let version: BTreeMap<&str, &str> =
                version.into_iter().map(|name| (name, "v1.34.4")).collect();
            (200, json!(version))
        }
        ("GET", "/apis/ckbprobe.dev/v1alpha1") => {
            let names = ["ckbprobes", "ckbprofiles", "nodeprobes", "profileparts"];
            let each = names.map(|name| json!({ "name": name, "singularName": "", "namespaced": true, "kind": name, "verbs": [] }));
            (
                200,
                json!({ "kind": "APIResourceList", "groupVersion": "ckbprobe.dev/v1alpha1", "resources": each }),
            )
        }
        ("POST", path) if path.ends_with("accessreviews") => {
            let mut review = body.clone();
            review["status"] = json!({ "allowed": true });
            (201, review)
        }
        ("GET", "/apis/apps/v1/deployments") => list(vec![object("deployment")]),
        ("GET", "/apis/ckbprobe.dev/v1alpha1/nodeprobes") if state.private => {
            refusal(403, "Forbidden", "nodeprobes.ckbprobe.dev is forbidden")
        }
        ("GET", "/apis/ckbprobe.dev/v1alpha1/nodeprobes") => {
            let mut order = object("nodeprobe");
            if let Some(rows) = &state.rows {
                order["status"]["instances"][0]["probes"][0]["rowsJson"] = json!(rows);
            }
            list(vec![order])
        }
        ("GET", "/api/v1/pods") if query.contains("agent") => list(vec![object("agent")]),
        ("GET", "/api/v1/pods") => list(Vec::new()),
        ("GET", "/api/v1/nodes") => list(vec![object("node")]),
        ("GET", path) if path.ends_with("/leases/ckb-probe-operator") => (200, object("lease")),
        ("POST", PROBES) if state.forbidden => {
            refusal(403, "Forbidden", "ckbprobes.ckbprobe.dev is forbidden")
        }
        ("POST", PROBES) => {
            let mut probe = body.clone();
            let name = probe["metadata"]["name"].as_str().unwrap().to_owned();
            probe["metadata"]["generation"] = json!(1);
            probe["metadata"]["uid"] = json!("u");
            state.probes.insert(name, (probe.clone(), 0));
            (201, probe)
        }
        ("GET", PROBES | "/apis/ckbprobe.dev/v1alpha1/ckbprobes") => list(
            state
                .probes
                .values()
                .map(|(probe, _)| probe.clone())
                .collect(),
        ),
        ("GET", PROFILES) => profiles(query, &mut state),
        ("GET", path) if path.starts_with(PROFILES) => {
            match state.profiles.get(&path[PROFILES.len() + 1..]) {
                Some(profile) => (200, profile.clone()),
                None => refusal(404, "NotFound", "ckbprofiles.ckbprobe.dev not found"),
            }
        }
        (_, path) => match path
            .strip_prefix(PROBES)
            .and_then(|rest| rest.strip_prefix('/'))
        {
            Some(name) => one(method, name, &mut state),
            None => refusal(
                404,
                "NotFound",
                "the server could not find the requested resource",
            ),
        },
    }
}

fn one(method: &str, name: &str, state: &mut State) -> (u16, Value) {
    let (stuck, events) = (state.stuck, state.events.clone());
    let Some((probe, looks)) = state.probes.get_mut(name) else {
        let message = format!("ckbprobes.ckbprobe.dev {name:?} not found");
        return refusal(404, "NotFound", &message);
    };
    if method == "DELETE" {
        let probe = probe.clone();
        state.probes.remove(name);
        state.deleted.push(name.to_owned());
        return (200, probe);
    }
    *looks += 1;
    let mut status = object("ckbprobe")["status"].clone();
    if stuck || *looks <= LOOKS {
        let reason = if stuck {
            "NoMatchingPods"
        } else {
            "AgentStarting"
        };
        let message = if stuck {
            "no pod of namespace e2e-soak matches app=nobody"
        } else {
            "agent pod ckb-probe-agent-node0 is starting"
        };
        status["conditions"][0] = json!({ "type": "Ready", "status": "False", "reason": reason, "message": message, "lastTransitionTime": "2026-11-26T10:10:36Z" });
        status["targets"] = json!({ "matched": 0, "attached": 0, "firing": 0, "summary": "0/0" });
        status["instances"] = json!([]);
    }
    if let Some(events) = events {
        status["probes"][0]["events"] = events;
    }
    probe["status"] = status;
    (200, probe.clone())
}

/// Reads requests, and answers each.
fn serve(stream: &TcpStream, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    loop {
        let mut first = String::new();
        if reader.read_line(&mut first).unwrap_or(0) == 0 {
            return;
        }
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            let line = line.trim().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(number) = line.strip_prefix("content-length:") {
                length = number.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let body = serde_json::from_slice(&body).unwrap_or_default();
        let mut words = first.split(' ');
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        let (code, object) = answer(method, path, &body, state);
        let body = object.to_string();
        let head = format!(
            "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        if stream.write_all((head + &body).as_bytes()).is_err() {
            return;
        }
    }
}
