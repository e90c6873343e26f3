//! The interpreter of Python that Debian has, by the notes of its own executable: a program in Python that does known things known numbers of
//! times. Each of its probes has a semaphore, and is not come by while that is 0.

use std::{path::Path, process::Command};

use super::{BTreeMap, Fixture, attached, listed, wait_until};

const INTERPRETER: &str = "/usr/bin/python3.11";

/// What is read and answered is by functions that are not Python's own, so that no others are called than it says. Orders, a line each:
/// `call TIMES`, `descend LEVELS`, `audit TIMES`, `import TIMES`, `collect TIMES` garbage of one object, and `at OFFSET`, which answers
/// with the number of two bytes that is mapped from there in its executable.
const PROGRAM: &str = r#"
import gc, os, sys
gc.disable()

def called():
    return 1

def descended(levels):
    if levels > 1:
        descended(levels - 1)

def at(offset):
    for mapped in open("/proc/self/maps"):
        words = mapped.split()
        first, last = (int(end, 16) for end in words[0].split("-"))
        begin = int(words[2], 16)
        if words[-1] == os.path.realpath(sys.executable) and begin <= offset < begin + last - first and "w" in words[1]:
            with open("/proc/self/mem", "rb") as memory:
                memory.seek(first + offset - begin)
                return int.from_bytes(memory.read(2), sys.byteorder)

while order := sys.stdin.buffer.readline():
    what, number = order.split()
    number, answer = int(number, 0), b""
    if what == b"call":
        for _ in range(number): called()
    elif what == b"descend":
        descended(number)
    elif what == b"audit":
        for _ in range(number): sys.audit("ckb_probe.test", number)
    elif what == b"import":
        for _ in range(number):
            del sys.modules["_bisect"]
            import _bisect
    elif what == b"collect":
        for _ in range(number):
            itself = []
            itself.append(itself)
            del itself
            gc.collect()
    elif what == b"at":
        answer = b" %d" % at(number)
    elif what == b"ready":
        import _bisect
        gc.collect()
    os.write(1, b"done%b\n" % answer)
"#;

/// A running one, which has nothing left over to collect.
fn program() -> Fixture {
    assert!(
        Path::new(INTERPRETER).exists(),
        "scripts/setup.sh unit installs Python, which is 3.11 in Debian 12"
    );
    // Without what may be in the environment, or be called when something is imported.
    let arguments = ["-I", "-S", "-B", "-c", PROGRAM];
    let mut program = Fixture::run(Command::new(INTERPRETER).args(arguments));
    assert_eq!(program.tell("ready 0"), "");
    program
}

/// Attaches to these, has things done, and tells how often each was met, by the value of an argument.
fn met(names: &str, by: &str, orders: [&str; 2]) -> BTreeMap<String, BTreeMap<String, u64>> {
    let mut program = program();
    let asked = [
        "--provider",
        "python",
        "--names",
        names,
        "--by-argument",
        by,
    ];
    let probe = attached(program.pid(), &asked);
    for order in orders {
        program.tell(order);
    }
    let (rows, said) = probe.rows();
    assert_eq!(said, "");
    let names = rows.counts().into_keys();
    names
        .map(|name| {
            let parts = rows.row(name).parts("count").into_iter();
            let parts = parts.map(|(value, count)| (value.to_string(), count));
            (name.to_string(), parts.collect())
        })
        .collect()
}

fn counts<const VALUES: usize>(all: [(&str, u64); VALUES]) -> BTreeMap<String, u64> {
    all.map(|(value, count)| (value.to_string(), count)).into()
}

const CALLS: [&str; 2] = ["call 1234", "descend 50"];

/// The beginnings of functions are met while lines are: so this version has it.
#[test]
fn each_call_of_a_function_and_each_line_of_it_is_counted_by_its_name() {
    let met = met("function__entry,function__return,line", "2:string", CALLS);
    let calls = counts([("\"called\"", 1234), ("\"descended\"", 50)]);
    assert_eq!(met["function__entry"], calls);
    assert_eq!(met["function__return"], calls);
    // A line each; and two each, but of the innermost, which calls no other.
    let mut lines = met["line"].clone();
    assert!(lines.remove("\"<module>\"").is_some());
    assert_eq!(lines, counts([("\"called\"", 1234), ("\"descended\"", 99)]));
}

#[test]
fn while_no_lines_are_met_no_beginning_of_a_function_is_and_each_return() {
    let met = met("function__*", "2:string", CALLS);
    assert_eq!(met["function__entry"], counts([]));
    let calls = counts([("\"called\"", 1234), ("\"descended\"", 50)]);
    assert_eq!(met["function__return"], calls);
}

#[test]
fn each_audited_event_and_each_import_is_counted_by_its_name() {
    let met = met(
        "audit,import__find__load__*",
        "1:string",
        ["audit 321", "import 5"],
    );
    let expected = [
        (
            "audit",
            counts([("\"ckb_probe.test\"", 321), ("\"import\"", 5)]),
        ),
        ("import__find__load__done", counts([("\"_bisect\"", 5)])),
        ("import__find__load__start", counts([("\"_bisect\"", 5)])),
    ];
    let expected = expected.map(|(name, counts)| (name.to_string(), counts));
    assert_eq!(met, expected.into());
}

#[test]
fn each_collection_of_garbage_is_counted_by_its_generation_and_by_what_it_collected() {
    let met = met("gc__*", "1", ["call 7", "collect 17"]);
    let expected = [
        ("gc__done", counts([("1", 17)])),
        ("gc__start", counts([("2", 17)])),
    ];
    let expected = expected.map(|(name, counts)| (name.to_string(), counts));
    assert_eq!(met, expected.into());
}

#[test]
fn a_semaphore_of_the_interpreter_is_raised_while_its_probe_is_attached_to_and_no_other_is() {
    let mut program = program();
    let notes = listed(&["--file", INTERPRETER]);
    assert_eq!(notes.last().unwrap(), "8 probes of python, at 8 places");
    let semaphore = |name: &str| {
        let note = notes
            .iter()
            .find(|note| note.contains(&format!("python:{name} ")));
        let mut words = note
            .unwrap()
            .split(' ')
            .skip_while(|word| *word != "semaphore");
        let offset = words.nth(1).unwrap().trim_start_matches('+');
        format!("at {offset}")
    };
    let orders = ["gc__start", "gc__done"].map(semaphore);
    let pid = program.pid();
    let mut semaphores = || orders.each_ref().map(|order| program.tell(order));
    assert_eq!(semaphores(), ["0", "0"]);
    let probe = attached(pid, &["--provider", "python", "--names", "gc__start"]);
    assert_eq!(semaphores(), ["1", "0"]);
    drop(probe.rows());
    wait_until("nobody is attached", || semaphores() == ["0", "0"]);
}
