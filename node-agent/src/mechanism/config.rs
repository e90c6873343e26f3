//! What kinds ask of mechanisms, and how all that one process is asked is begun: by mechanism, and for each at once.

use std::{
    any::{Any, TypeId},
    fmt,
};

use super::{Accepted, Foreign, GroupId, Mechanism, Node, Refusal};
use crate::observe::ProcessId;

/// What becomes of a question.
pub type Answer = Result<Accepted, Refusal>;

/// Where a mechanism is begun.
pub struct BeginContext<'a> {
    /// The process.
    pub process: ProcessId,
    /// The namespace of its pod: what there is once for the node is shared by namespaces.
    pub namespace: &'a str,
    /// The number of its first group.
    pub first: GroupId,
    /// What measuring may cost, per CPU time of the process; None: whatever it costs.
    pub ratio: Option<f64>,
    /// What is there once for all processes of the node.
    pub node: &'a mut Node,
}

/// What began for some questions.
pub struct Begun {
    /// In the order of the questions.
    pub answers: Vec<Answer>,
    /// Loaded, and attached to nothing yet.
    pub mechanisms: Vec<Box<dyn Mechanism>>,
}

impl Begun {
    /// Nothing: each is refused.
    pub fn refused(refusals: impl IntoIterator<Item = Refusal>) -> Self {
        Self {
            answers: refusals.into_iter().map(Err).collect(),
            mechanisms: Vec::new(),
        }
    }

    /// A mechanism for each of these, by itself.
    pub fn each<C>(
        configs: &[C],
        context: BeginContext<'_>,
        begin: impl Fn(&C, BeginContext<'_>) -> Result<OneBegun, Refusal>,
    ) -> Self {
        let mut begun = Self::refused([]);
        let mut first = context.first;
        for config in configs {
            let context = BeginContext {
                first,
                node: &mut *context.node,
                ..context
            };
            begun
                .answers
                .push(begin(config, context).map(|(mechanism, accepted)| {
                    first = first.offset(mechanism.costs().len());
                    begun.mechanisms.push(mechanism);
                    accepted
                }));
        }
        begun
    }
}

/// Looks again for what was not there, and says whether there is more to be measured now.
pub type Search = Box<dyn FnOnce() -> bool + Send>;

/// What a kind asks of a mechanism: a type for each mechanism.
pub trait Config: fmt::Debug + Sized + 'static {
    /// Loads what measures all of these, and attaches nothing yet. Groups are numbered from `context.first` on.
    fn begin(configs: &[Self], context: BeginContext<'_>) -> Begun;

    /// Whether it is attached to files that the process has mapped: what it maps in their place has nothing attached.
    fn is_of_files() -> bool {
        false
    }

    /// How to look again for what was not there as these were begun, which `answers` tell of. None: nothing is looked for, so who
    /// was refused can but be begun anew.
    fn search(_: Vec<Self>, _: Vec<Answer>, _: ProcessId, _: &Node) -> Option<Search> {
        None
    }
}

/// A config that is begun by itself, whatever else the process is asked.
pub trait Single: fmt::Debug + Sized + 'static {
    /// Loads what measures it, and attaches nothing yet.
    fn begin_one(&self, context: BeginContext<'_>) -> Result<OneBegun, Refusal>;
}

impl<C: Single> Config for C {
    fn begin(configs: &[Self], context: BeginContext<'_>) -> Begun {
        Begun::each(configs, context, Self::begin_one)
    }
}

/// What began for one question.
pub type OneBegun = (Box<dyn Mechanism>, Accepted);

/// A [`Config`] of some mechanism.
#[derive(Debug)]
pub struct CollectorConfig(Box<dyn AnyConfig>);

impl<C: Config> From<C> for CollectorConfig {
    fn from(config: C) -> Self {
        Self(Box::new(config))
    }
}

impl CollectorConfig {
    /// See [`Config::is_of_files`].
    pub fn is_of_files(&self) -> bool {
        self.0.is_of_files()
    }

    /// It, if it is of this mechanism.
    pub fn of<C: Config>(self) -> Option<C> {
        let config: Box<dyn Any> = self.0;
        config.downcast().ok().map(|config| *config)
    }
}

/// What several questions ask of one mechanism.
pub struct Batch {
    /// The places of the questions.
    pub places: Vec<usize>,
    /// The type of what it is asked.
    mechanism: TypeId,
    configs: Vec<Box<dyn AnyConfig>>,
}

impl Batch {
    /// All that is asked, each with the place of its question, by mechanism, in the order in which mechanisms are first asked.
    pub fn all(configs: impl Iterator<Item = (usize, CollectorConfig)>) -> Vec<Self> {
        let mut batches: Vec<Self> = Vec::new();
        for (place, CollectorConfig(config)) in configs {
            let of = (*config).type_id();
            let index = batches.iter().position(|batch| batch.mechanism == of);
            let index = index.unwrap_or_else(|| {
                batches.push(Self {
                    places: Vec::new(),
                    mechanism: of,
                    configs: Vec::new(),
                });
                batches.len() - 1
            });
            let batch = &mut batches[index];
            batch.places.push(place);
            batch.configs.push(config);
        }
        batches
    }

    /// See [`Config::begin`].
    pub fn begin(self, context: BeginContext<'_>) -> Begun {
        if let Err(foreign) = Foreign::check() {
            return Begun::refused(self.places.iter().map(|_| foreign.into()));
        }
        let mut configs = self.configs.into_iter();
        match configs.next() {
            Some(first) => first.begin_with(configs.collect(), context),
            None => Begun::refused([]),
        }
    }

    /// See [`Config::search`].
    pub fn search(self, answers: Vec<Answer>, process: ProcessId, node: &Node) -> Option<Search> {
        let mut configs = self.configs.into_iter();
        configs
            .next()?
            .search_with(configs.collect(), answers, process, node)
    }
}

/// A [`Config`] whose type is not known. What is done with several of the same type is done by the first of them.
trait AnyConfig: Any + fmt::Debug {
    fn is_of_files(&self) -> bool;

    fn begin_with(
        self: Box<Self>,
        others: Vec<Box<dyn AnyConfig>>,
        context: BeginContext<'_>,
    ) -> Begun;

    fn search_with(
        self: Box<Self>,
        others: Vec<Box<dyn AnyConfig>>,
        answers: Vec<Answer>,
        process: ProcessId,
        node: &Node,
    ) -> Option<Search>;
}

impl<C: Config> AnyConfig for C {
    fn is_of_files(&self) -> bool {
        C::is_of_files()
    }

    fn begin_with(
        self: Box<Self>,
        others: Vec<Box<dyn AnyConfig>>,
        context: BeginContext<'_>,
    ) -> Begun {
        C::begin(&typed(*self, others), context)
    }

    fn search_with(
        self: Box<Self>,
        others: Vec<Box<dyn AnyConfig>>,
        answers: Vec<Answer>,
        process: ProcessId,
        node: &Node,
    ) -> Option<Search> {
        C::search(typed(*self, others), answers, process, node)
    }
}

fn typed<C: Config>(first: C, others: Vec<Box<dyn AnyConfig>>) -> Vec<C> {
    let others = others.into_iter().map(CollectorConfig);
    let others = others.filter_map(CollectorConfig::of);
    std::iter::once(first).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanism::{Coverage, Reason};

    #[derive(Debug)]
    struct Together(u8);

    #[derive(Debug)]
    struct Alone(u8);

    fn refusal(text: String) -> Refusal {
        Refusal::new(Reason::AttachFailed, text)
    }

    impl Config for Together {
        fn begin(configs: &[Self], context: BeginContext<'_>) -> Begun {
            let first = context.first.0;
            Begun::refused(
                configs
                    .iter()
                    .map(|one| refusal(format!("{} of {} from {first}", one.0, configs.len()))),
            )
        }

        fn search(
            configs: Vec<Self>,
            answers: Vec<Answer>,
            _: ProcessId,
            _: &Node,
        ) -> Option<Search> {
            Some(Box::new(move || configs.len() == 2 && answers[1].is_ok()))
        }
    }

    impl Config for Alone {
        fn begin(configs: &[Self], context: BeginContext<'_>) -> Begun {
            Begun::each(configs, context, |one, context| {
                Err(refusal(format!("{} from {}", one.0, context.first.0)))
            })
        }
    }

    const PROCESS: ProcessId = ProcessId {
        pid: 1,
        start_ticks: 0,
    };

    fn batches() -> Vec<Batch> {
        let all: [CollectorConfig; 4] = [
            Alone(1).into(),
            Together(2).into(),
            Alone(3).into(),
            Together(4).into(),
        ];
        Batch::all(all.into_iter().enumerate())
    }

    #[test]
    fn what_is_asked_of_one_mechanism_is_begun_at_once() {
        let mut node = Node::default();
        let mut told = Vec::new();
        for batch in batches() {
            let places = batch.places.clone();
            let context = BeginContext {
                process: PROCESS,
                namespace: "",
                first: GroupId(7),
                ratio: None,
                node: &mut node,
            };
            let answers = batch.begin(context).answers.into_iter();
            let answers = answers.map(|answer| answer.unwrap_err().message);
            told.extend(places.into_iter().zip(answers));
        }
        let expected = [
            (0, "1 from 7"),
            (2, "3 from 7"),
            (1, "2 of 2 from 7"),
            (3, "4 of 2 from 7"),
        ];
        assert_eq!(
            told,
            expected.map(|(place, text)| (place, text.to_string()))
        );
    }

    #[test]
    fn each_mechanism_says_how_it_looks_again() {
        let found = Ok(Accepted {
            coverage: Coverage::default(),
            ..Accepted::default()
        });
        let mut searches = batches().into_iter().map(|batch| {
            batch.search(
                vec![Err(refusal(String::new())), found.clone()],
                PROCESS,
                &Node::default(),
            )
        });
        assert!(searches.next().unwrap().is_none());
        assert!(searches.next().unwrap().unwrap()());
    }
}
