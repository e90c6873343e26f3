//! Stacks are taken on a thread of their own: names and tables are read from the target's files, and a file system that hangs must not
//! have the command hang with it.

use std::{
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::Duration,
};

use ckb_probe_agent::{
    mechanism::stacks::{self, Profile, SamplerMode, StackSampler, StacksError, Threads},
    observe::ProcessId,
    preflight::preflight,
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::timeout,
};

use super::CliError;

/// The target's files have so long to answer, each time that they are asked. All tables of CKB are read within a tenth of a second.
const DEADLINE: Duration = Duration::from_secs(10);

enum Order {
    Step,
    Finish,
}

enum Answer {
    /// With how long to wait until the next step.
    Stepped(Duration),
    Finished(Profile),
}

/// A sampler, on its thread.
pub struct Sampling {
    pid: u32,
    /// How long to wait from one step to the next.
    pub pace: Duration,
    orders: Sender<Order>,
    answers: UnboundedReceiver<Result<Answer, StacksError>>,
}

impl Sampling {
    /// Begins to sample.
    pub async fn begin(
        process: ProcessId,
        mode: SamplerMode,
        frequency: u32,
    ) -> Result<Self, CliError> {
        let (orders, taken) = channel();
        let (sender, answers) = unbounded_channel();
        start(move || serve(process, mode, frequency, &taken, &sender))?;
        let mut sampling = Self {
            pid: process.pid,
            pace: Duration::ZERO,
            orders,
            answers,
        };
        let answer = sampling.answer().await?;
        sampling.stepped(&answer);
        Ok(sampling)
    }

    /// Takes what has come, or goes through all threads.
    pub async fn step(&mut self) -> Result<(), CliError> {
        let answer = self.ask(Order::Step).await?;
        self.stepped(&answer);
        Ok(())
    }

    fn stepped(&mut self, answer: &Answer) {
        if let Answer::Stepped(pace) = answer {
            self.pace = *pace;
        }
    }

    /// Ends, and says what was found.
    pub async fn finish(mut self) -> Result<Profile, CliError> {
        match self.ask(Order::Finish).await? {
            Answer::Finished(profile) => Ok(profile),
            Answer::Stepped(_) => Err(silent(self.pid)),
        }
    }

    async fn ask(&mut self, order: Order) -> Result<Answer, CliError> {
        // Whoever does not take it any more does not answer either.
        drop(self.orders.send(order));
        self.answer().await
    }

    async fn answer(&mut self) -> Result<Answer, CliError> {
        match timeout(DEADLINE, self.answers.recv()).await {
            Ok(Some(answer)) => Ok(answer?),
            _ => Err(silent(self.pid)),
        }
    }
}

fn serve(
    process: ProcessId,
    mode: SamplerMode,
    frequency: u32,
    orders: &Receiver<Order>,
    answers: &UnboundedSender<Result<Answer, StacksError>>,
) {
    // Calibrating takes half a second, which who samples nothing by functions need not wait.
    let means = (mode == SamplerMode::Allocations).then(|| preflight(None).means);
    let means = means.and_then(Result::ok);
    let mut sampler = match StackSampler::begin(process, mode, frequency, means.as_ref()) {
        Ok(sampler) => sampler,
        // Where nobody listens any more, nobody needs to know.
        Err(error) => return drop(answers.send(Err(error))),
    };
    drop(answers.send(Ok(Answer::Stepped(sampler.pace()))));
    loop {
        match orders.recv() {
            Ok(Order::Step) => {
                let stepped = sampler.step();
                let stepped = stepped.map(|()| Answer::Stepped(sampler.pace()));
                drop(answers.send(stepped));
            }
            Ok(Order::Finish) => {
                return drop(answers.send(sampler.finish().map(Answer::Finished)));
            }
            Err(_) => return,
        }
    }
}

/// What each thread of a process does now.
pub async fn threads(process: ProcessId) -> Result<Threads, CliError> {
    let (sender, mut answers) = unbounded_channel();
    start(move || drop(sender.send(stacks::threads(process))))?;
    match timeout(DEADLINE, answers.recv()).await {
        Ok(Some(states)) => Ok(states?),
        _ => Err(silent(process.pid)),
    }
}

/// Nobody waits for its end: where it hangs, it ends with the process.
fn start(work: impl FnOnce() + Send + 'static) -> Result<(), CliError> {
    let named = thread::Builder::new().name("stacks".to_string());
    named.spawn(work).map(drop).map_err(CliError::Thread)
}

fn silent(pid: u32) -> CliError {
    CliError::Silent {
        pid,
        seconds: DEADLINE.as_secs(),
    }
}
