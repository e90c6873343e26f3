//! By what this kernel measures a kind, or that it cannot, as it is known beforehand.

use std::{collections::BTreeMap, sync::Mutex, time::Duration};

use ckb_probe_agent::{
    host::{HostError, Session, find_process},
    kernel::{CalibratedTier, Tier},
    mechanism::Refusal,
    preflight::Unmeasurable,
    state::series::RowState,
};
use ckb_probe_crds::{Breach, Figures, KindSpec, Overhead, Probe, Reason, kinds::Kind};
use ckb_probe_testkit::Fixture;

use crate::{
    harness::{by_every_tier, tiers, watching},
    kernel_tiers::kernel_tiers,
};

/// What a list of ways says where there is none.
pub const NONE: &str = "none";

/// One way to have a question answered.
pub struct Way {
    question: KindSpec,
    means: Result<CalibratedTier, Unmeasurable>,
}

impl Way {
    /// For kinds that need none: they must not ask for what attaches them either.
    pub fn without_uprobes(question: impl Into<KindSpec>) -> Self {
        Self {
            question: question.into(),
            means: Err(Unmeasurable::since("this was not looked at")),
        }
    }

    /// Attaches for good: everything is counted, whatever it costs.
    pub fn attach(&self, process: u32) -> Session {
        self.ask(self.question.clone(), process).unwrap()
    }

    /// Whether the kernel itself remembers calls in flight, and tells nobody of those that do not return.
    pub fn is_a_session(&self) -> bool {
        self.means
            .as_ref()
            .is_ok_and(|means| means.tier == Tier::Session)
    }

    /// The same for another question, which may be refused.
    pub fn ask(&self, question: KindSpec, process: u32) -> Result<Session, Refusal> {
        self.ask_all([question], process)
    }

    /// The same for several, which are the session's probes in this order.
    pub fn ask_all(
        &self,
        questions: impl IntoIterator<Item = KindSpec>,
        process: u32,
    ) -> Result<Session, Refusal> {
        let questions = questions.into_iter().enumerate();
        let probes =
            questions.map(|(place, question)| Probe::new(&format!("probe-{place}"), question));
        let process = find_process(Some(process), "").unwrap();
        let overhead = Overhead {
            on_breach: Breach::Report,
            ..Overhead::default()
        };
        let hour = Duration::from_secs(3600);
        let means = self.means.clone();
        match Session::attach_all(means, process, probes.collect(), overhead, hour) {
            Ok(session) => Ok(session),
            Err(HostError::Attach(refusal)) => Err(refusal),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Runs a test in each way in which this kernel answers the question, and prints a line for each that it passed by. Where it
/// must be refused, that is what is tested.
pub fn in_every_way(question: impl Into<KindSpec>, test: impl Fn(&Way)) {
    let question = question.into();
    let watching = watching();
    let _entered = watching.enter();
    let without_uprobes = Way::without_uprobes(question.clone());
    match question.kind() {
        Kind::Rocksdb | Kind::Functions | Kind::Usdt | Kind::Chain
            if std::env::var("CKB_PROBE_TIERS").is_ok_and(is_none) =>
        {
            let (works, refused) = tiers();
            assert!(works.is_empty(), "nothing is to work here: {works:?}");
            let way = Way {
                question,
                means: Err(Unmeasurable::since(refused)),
            };
            refused_as(
                &way,
                Reason::PreflightFailed,
                "no function can be measured on this node: no way to attach works: ",
            );
        }
        Kind::Rocksdb | Kind::Functions | Kind::Usdt | Kind::Chain => by_every_tier(|means| {
            test(&Way {
                question: question.clone(),
                means: Ok(means),
            });
        }),
        Kind::KernelFunctions => match kernel_tiers().first() {
            Some(best) => {
                test(&without_uprobes);
                println!("passed by {}", best.as_str());
            }
            None => refused_as(
                &without_uprobes,
                Reason::UnsupportedByKernel,
                "functions of this node's kernel cannot be probed: that takes one built with CONFIG_FPROBE (Linux 5.18 or \
                 later) or with CONFIG_KPROBE_EVENTS (",
            ),
        },
        Kind::Syscalls | Kind::BlockIo | Kind::Tcp | Kind::Processes | Kind::Profile => {
            test(&without_uprobes);
            println!("passed by tracing");
        }
    }
}

fn is_none(list: String) -> bool {
    list == NONE
}

/// Sees it refused, of a process that has all that it takes: this one. Once for all tests of the kind, since an emulated machine
/// takes its time to try all tiers.
fn refused_as(way: &Way, reason: Reason, sentence: &str) {
    static REFUSED: Mutex<BTreeMap<Kind, Refusal>> = Mutex::new(BTreeMap::new());
    let mut refused = REFUSED.lock().unwrap();
    let refusal = refused.entry(way.question.kind()).or_insert_with(|| {
        let refusal = way.ask(way.question.clone(), std::process::id()).err();
        refusal.unwrap()
    });
    assert_eq!(refusal.reason, reason, "{refusal}");
    assert!(refusal.message.starts_with(sentence), "{refusal}");
    println!("{refusal}\npassed by refusal");
}

/// A program that makes a known number of system calls: `CALL COUNT THREADS`.
pub fn caller() -> Fixture {
    Fixture::named("ground-truth-kernel", &[])
}

/// The books of a row.
pub fn row<'a>(session: &'a Session, name: &str) -> &'a RowState {
    let series = || session.instance().probes[0].series.iter();
    let known = series().flat_map(|series| series.rows.keys());
    let known: Vec<&String> = known.collect();
    let row = series().find_map(|series| series.rows.get(name));
    row.unwrap_or_else(|| panic!("no row {name} among {known:?}"))
}

/// What all rows are called.
pub fn rows_of(session: &Session) -> Vec<&str> {
    let series = session.instance().probes[0].series.iter();
    let mut names: Vec<&str> = series
        .flat_map(|series| series.rows.keys().map(String::as_str))
        .collect();
    names.sort_unstable();
    names
}

/// All that was counted in it.
pub fn total<'a>(session: &'a Session, name: &str) -> &'a Figures {
    &row(session, name).all.total
}

/// How much of everything could not be recorded.
pub fn lost(session: &Session) -> u64 {
    session.instance().lost.values().sum()
}
