//! The kinds, as the agent knows them: what each asks of which mechanism, and what its rows are called. All of it is pure.
//!
//! The list is that of `ckb-probe-crds`: a kind has a folder of its name here, with an [`Instrument`] for its spec.

use std::{fmt::Debug, sync::Arc};

use ckb_probe_crds::{Kind, KindSpec, for_each_kind};

use crate::mechanism::{CollectorConfig, RowId, calls};

macro_rules! declare_kinds {
    ($($(#[$doc:meta])* $kind:ident $name:literal $module:ident $spec:ident $example:literal,)*) => {
        $(
            $(#[$doc])*
            pub mod $module;
        )*

        /// What answers a question.
        pub fn instrument(question: &KindSpec) -> Arc<dyn Instrument> {
            match question {
                $(KindSpec::$kind(spec) => Arc::new(spec.clone()),)*
            }
        }

        /// What the kinds look for by name, with all that they can be asked.
        pub fn listed() -> Vec<calls::Counted> {
            let mut all = Vec::new();
            $(all.extend($module::Arguments::listed());)*
            all
        }
    };
}

for_each_kind!(declare_kinds!);

/// What a kind takes on the command line.
pub trait Asking {
    /// What the subcommand is called that gives its table.
    const COMMAND: &str;

    /// What it comes to.
    fn kind_spec(self) -> KindSpec;

    /// Whether slow calls are told with their stacks.
    fn reports_stacks(&self) -> bool {
        false
    }

    /// The functions that it looks for by name, with all that it can be asked.
    fn listed() -> Vec<calls::Counted> {
        Vec::new()
    }
}

/// What a kind makes of its spec.
pub trait Instrument: Debug + Send + Sync {
    /// What is to be measured, and by which mechanism.
    fn config(&self) -> CollectorConfig;

    /// What is measured besides, by another mechanism, where it can be: the answer to the question is that of the first.
    fn beside(&self) -> Option<CollectorConfig> {
        None
    }

    /// What a row is called that came by, of a load that has several.
    fn row(&self, raw: &RowId) -> String {
        raw.text.clone()
    }

    /// What a part of a row is called.
    fn part(&self, raw: &RowId) -> String {
        raw.text.clone()
    }
}

/// A probe of a spec, as it is answered.
#[derive(Clone, Debug)]
pub struct Instrumented {
    /// Its name in the spec.
    pub name: String,
    /// What it asks.
    pub question: KindSpec,
    /// What answers it.
    pub instrument: Arc<dyn Instrument>,
}

impl Instrumented {
    /// A probe of this name that asks this.
    pub fn new(name: &str, question: impl Into<KindSpec>) -> Self {
        let question = question.into();
        Self {
            name: name.to_string(),
            instrument: instrument(&question),
            question,
        }
    }

    /// The kind of the probe.
    pub fn kind(&self) -> Kind {
        self.question.kind()
    }
}

/// The probes of a spec. One of a kind that this version does not know is not among them.
pub fn instrumented(probes: &[ckb_probe_crds::Probe]) -> Vec<Instrumented> {
    let known = |probe: &ckb_probe_crds::Probe| {
        let question = probe.kind_spec()?;
        Some(Instrumented::new(&probe.name, question))
    };
    probes.iter().filter_map(known).collect()
}
