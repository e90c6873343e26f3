//! Stacks are taken on a thread of their own: names and tables are read from the target's files, and a file system that hangs must not
//! have the command hang with it.

use std::{
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::Duration,
};

use ckb_probe_agent::{
    kernel::CalibratedTier,
    mechanism::stacks::{self, Profile, SamplerMode, StackSampler, StacksError, Threads},
    observe::{OwnThread, ProcessId, Standstill},
    preflight::preflight,
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::timeout,
};

use super::CliError;

/// The target's files have so long to answer, each time that they are asked, without the thread that asks them having had anything else to
/// do, or to wait for a CPU. All tables of CKB are read within a tenth of a second, on a node that leaves a CPU for it.
const DEADLINE: Duration = Duration::from_secs(10);

enum Order {
    Step,
    Finish,
}

enum Answer {
    /// With how long to wait until the next step.
    Stepped(Duration),
    Finished(Box<Profile>),
}

/// A sampler, on its thread.
pub struct Sampling {
    pid: u32,
    /// How long to wait from one step to the next.
    pub pace: Duration,
    orders: Sender<Order>,
    answers: Answers<Answer>,
}

impl Sampling {
    /// Begins to sample.
    pub async fn begin(
        process: ProcessId,
        mode: SamplerMode,
        frequency: u32,
    ) -> Result<Self, CliError> {
        // Calibrating takes half a second, which who samples nothing by functions need not wait. None of the target's files is read.
        let means = (mode == SamplerMode::Allocations).then(|| preflight(None).means);
        let means = means.and_then(Result::ok);
        let (orders, taken) = channel();
        let answers = start(move |answers| {
            serve(process, mode, frequency, means.as_ref(), &taken, answers);
        })?;
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
            Answer::Finished(profile) => Ok(*profile),
            Answer::Stepped(_) => Err(silent(self.pid)),
        }
    }

    async fn ask(&mut self, order: Order) -> Result<Answer, CliError> {
        // Whoever does not take it any more does not answer either.
        drop(self.orders.send(order));
        self.answer().await
    }

    async fn answer(&mut self) -> Result<Answer, CliError> {
        match self.answers.next().await {
            Some(answer) => Ok(answer?),
            None => Err(silent(self.pid)),
        }
    }
}

fn serve(
    process: ProcessId,
    mode: SamplerMode,
    frequency: u32,
    means: Option<&CalibratedTier>,
    orders: &Receiver<Order>,
    answers: &UnboundedSender<Result<Answer, StacksError>>,
) {
    let mut sampler = match StackSampler::begin(process, mode, frequency, means) {
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
                let finished = sampler.finish().map(Box::new).map(Answer::Finished);
                return drop(answers.send(finished));
            }
            Err(_) => return,
        }
    }
}

/// What each thread of a process does now.
pub async fn threads(process: ProcessId) -> Result<Threads, CliError> {
    let mut answers = start(move |answers| drop(answers.send(stacks::threads(process))))?;
    match answers.next().await {
        Some(states) => Ok(states?),
        None => Err(silent(process.pid)),
    }
}

/// What a thread answers that reads the target's files.
struct Answers<T> {
    answers: UnboundedReceiver<Result<T, StacksError>>,
    thread: OwnThread,
}

impl<T> Answers<T> {
    /// The next one; None where there is none in time.
    async fn next(&mut self) -> Option<Result<T, StacksError>> {
        self.next_within(DEADLINE).await
    }

    async fn next_within(&mut self, deadline: Duration) -> Option<Result<T, StacksError>> {
        // One that neither ran nor waits for a CPU waits for a file.
        let mut standstill = Standstill::of(self.thread);
        while standstill.lasts() < deadline {
            if let Ok(answer) = timeout(deadline / 20, self.answers.recv()).await {
                return answer;
            }
        }
        None
    }
}

/// Nobody waits for its end: where it hangs, it ends with the process.
fn start<T: Send + 'static>(
    work: impl FnOnce(&UnboundedSender<Result<T, StacksError>>) + Send + 'static,
) -> Result<Answers<T>, CliError> {
    let (sender, answers) = unbounded_channel();
    let (number, told) = channel();
    let named = thread::Builder::new().name("stacks".to_string());
    let work = move || {
        number.send(OwnThread::current()).unwrap_or_default();
        work(&sender);
    };
    named.spawn(work).map_err(CliError::Thread)?;
    // It says so before anything else.
    let thread = told.recv().unwrap_or_else(|_| OwnThread::current());
    Ok(Answers { answers, thread })
}

fn silent(pid: u32) -> CliError {
    CliError::Silent {
        pid,
        seconds: DEADLINE.as_secs(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const SOON: Duration = Duration::from_millis(300);

    #[tokio::test]
    async fn who_works_for_longer_is_waited_for_and_who_waits_is_not() {
        let began = Instant::now();
        let mut works = start(move |answers| {
            while began.elapsed() < 4 * SOON {
                std::hint::spin_loop();
            }
            drop(answers.send(Ok(7)));
        })
        .unwrap();
        assert_eq!(works.next_within(SOON).await.map(Result::unwrap), Some(7));
        let (stays, until) = channel::<()>();
        let mut waits = start::<u8>(move |_| until.recv().unwrap_or_default()).unwrap();
        let began = Instant::now();
        assert!(waits.next_within(SOON).await.is_none());
        assert!(began.elapsed() < 20 * SOON);
        drop(stays);
    }
}
