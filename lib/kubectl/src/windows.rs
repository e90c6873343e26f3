//! CkbProfiles of a CkbProbe: the newest of a mode, or the one that comes next.

use std::{io::IsTerminal, time::Duration};

use ckb_probe_crds::{CkbProbe, CkbProfile, ProfileMode, label};
use ckb_probe_views::{
    figures,
    windows::{self, Maker, Progress, Wanted},
};
use clap::Args;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client, ResourceExt, api::ListParams};
use tokio::time::{Instant, sleep_until};

use crate::{VerbError, error::sentence, flames::Named, interrupts::Interrupts};

const LOOK: Duration = Duration::from_secs(1);

/// A window that is over for so long and is not there will not come.
const PATIENCE: Duration = Duration::from_secs(120);

/// Which window is meant.
#[derive(Args, Clone, Debug, Default)]
pub struct WindowArguments {
    /// The probe of the CkbProbe. Unset: the first that makes such profiles.
    #[arg(long, value_name = "NAME")]
    pub probe: Option<String>,
    /// Wait for the next window to be over, though there are others. Unset: the newest, and where there is none the next.
    #[arg(long, conflicts_with = "latest")]
    pub next: bool,
    /// Do not wait: the newest that there is.
    #[arg(long)]
    pub latest: bool,
}

/// A window that is there; the later one is the greater.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Known {
    window: u64,
    created: Option<Timestamp>,
    name: String,
}

/// Where CkbProfiles are looked for.
pub(crate) struct Windows<'a> {
    profiles: Api<CkbProfile>,
    probes: Api<CkbProbe>,
    namespace: &'a str,
    name: &'a str,
}

impl<'a> Windows<'a> {
    /// Of a CkbProbe.
    pub(crate) fn of(client: &Client, namespace: &'a str, name: &'a str) -> Self {
        Self {
            profiles: Api::namespaced(client.clone(), namespace),
            probes: Api::namespaced(client.clone(), namespace),
            namespace,
            name,
        }
    }

    /// The one that is meant, as soon as it is there. Before that a line tells how far it is.
    pub(crate) async fn get(
        &self,
        asked: &WindowArguments,
        mode: Option<ProfileMode>,
    ) -> Result<CkbProfile, VerbError> {
        let subject = self.subject();
        let maker = self.maker(asked, mode).await?;
        let before = self.known(&maker).await?.pop();
        if let Some(newest) = before.as_ref().filter(|_| !asked.next) {
            return self.read(&newest.name).await;
        }
        if asked.latest {
            return Err(VerbError::NoWindow(format!(
                "{subject} has no CkbProfile of {} yet: without --latest the next window is waited for",
                maker.mode
            )));
        }
        let next = self.wait(&maker, before.as_ref(), &subject).await?;
        self.read(&next.name).await
    }

    /// The two that are the newest, the older one first.
    pub(crate) async fn last_two(
        &self,
        asked: &WindowArguments,
        mode: Option<ProfileMode>,
    ) -> Result<[CkbProfile; 2], VerbError> {
        let subject = self.subject();
        let maker = self.maker(asked, mode).await?;
        let known = self.known(&maker).await?;
        let [.., before, after] = known.as_slice() else {
            return Err(VerbError::NoWindow(format!(
                "{subject} has {} of the two CkbProfiles of {} that are to be compared: a probe of the kind profile with `every` goes on making them",
                known.len(),
                maker.mode
            )));
        };
        Ok([
            self.read(&before.name).await?,
            self.read(&after.name).await?,
        ])
    }

    /// One by its name.
    pub(crate) async fn read(&self, name: &str) -> Result<CkbProfile, VerbError> {
        let what = format!("read CkbProfile {name}");
        let read = self.profiles.get(name).await;
        read.map_err(|error| VerbError::request(what, self.namespace, error))
    }

    fn subject(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Which of its probes makes what is meant.
    async fn maker(
        &self,
        asked: &WindowArguments,
        mode: Option<ProfileMode>,
    ) -> Result<Maker, VerbError> {
        let probe = self.probe().await?;
        windows::maker(&probe, asked.probe.as_deref(), mode)
            .ok_or_else(|| VerbError::NoStacks(self.subject(), what_is_made(&probe, mode)))
    }

    async fn probe(&self) -> Result<CkbProbe, VerbError> {
        let what = format!("read CkbProbe {}", self.name);
        let read = self.probes.get(self.name).await;
        read.map_err(|error| VerbError::request(what, self.namespace, error))
    }

    /// Those that are there, the newest last; by their labels, since each has half a mebibyte.
    async fn known(&self, maker: &Maker) -> Result<Vec<Known>, VerbError> {
        let list = self.list(maker).await;
        list.map_err(|error| VerbError::request("list CkbProfiles", self.namespace, error))
    }

    async fn list(&self, maker: &Maker) -> Result<Vec<Known>, kube::Error> {
        let labels = format!(
            "{}={},{}={},{}={}",
            label::CKB_PROBE,
            self.name,
            label::PROBE,
            maker.probe,
            label::MODE,
            maker.mode.as_str(),
        );
        let list = ListParams::default().labels(&labels);
        let found = self.profiles.list_metadata(&list).await?;
        let known = found.items.iter().map(|profile| {
            let number = profile.labels().get(label::WINDOW);
            let number = number.and_then(|text| text.parse().ok());
            Known {
                window: number.unwrap_or_default(),
                created: profile.creation_timestamp().map(|time| time.0),
                name: profile.name_any(),
            }
        });
        let mut known: Vec<Known> = known.collect();
        known.sort_unstable();
        Ok(known)
    }

    async fn wait(
        &self,
        maker: &Maker,
        before: Option<&Known>,
        subject: &str,
    ) -> Result<Known, VerbError> {
        let since = Timestamp::now();
        let mut interrupts = Interrupts::new()?;
        let mut line = ProgressLine::default();
        loop {
            let next = Instant::now() + LOOK;
            match self.list(maker).await {
                Ok(mut known) => {
                    if let Some(newest) = known.pop().filter(|newest| Some(newest) > before) {
                        line.end();
                        return Ok(newest);
                    }
                }
                // It may come back.
                Err(error) => line.say(&format!("ckbprobe: {}", sentence(&error))),
            }
            let progress = maker.progress(since, Timestamp::now());
            if let Progress::Ended(time) = &progress
                && *time > PATIENCE
            {
                line.end();
                let said = self.probe().await.map(|probe| figures::progress(&probe));
                return Err(VerbError::NoWindow(format!(
                    "a window of {subject} is over for {} s and there is no CkbProfile of {}; {}. See kubectl ckbprobe doctor {} -n {}",
                    time.as_secs(),
                    maker.mode,
                    said.unwrap_or_default(),
                    self.name,
                    self.namespace,
                )));
            }
            line.show(&maker.line(subject, &progress));
            tokio::select! {
                () = sleep_until(next) => {}
                () = interrupts.next() => {
                    line.end();
                    return Err(VerbError::NoWindow("interrupted before the window was over".to_owned()));
                }
            }
        }
    }
}

/// The modes that a CkbProbe makes, or why there is none.
fn what_is_made(probe: &CkbProbe, mode: Option<ProfileMode>) -> String {
    let all = ProfileMode::ALL.iter().copied();
    let made = all.filter(|mode| windows::maker(probe, None, Some(*mode)).is_some());
    let made: Vec<&str> = made.map(|mode| mode.as_str()).collect();
    let wanted = mode.map_or_else(String::new, |mode| format!(" of {mode}"));
    match made.is_empty() {
        true => format!("no probe makes profiles{wanted}"),
        false => format!(
            "no such probe makes profiles{wanted}, but of {}",
            made.join(", ")
        ),
    }
}

/// The stacks of a CkbProfile, of the targets that are meant.
pub(crate) fn named(profile: &CkbProfile, wanted: &Wanted) -> Result<Named, VerbError> {
    let name = format!(
        "{}/{}",
        profile.namespace().unwrap_or_default(),
        profile.name_any()
    );
    let named = Named::read(&name, &profile.spec.pprof.0)?;
    Ok(match &wanted.target {
        Some(asked) => named.of_targets(asked, |target| wanted.has(target))?,
        None => named,
    })
}

/// One line on standard error that tells how far it is: over the one before in a terminal, elsewhere once.
#[derive(Debug)]
pub struct ProgressLine {
    redraws: bool,
    shown: String,
}

impl Default for ProgressLine {
    fn default() -> Self {
        Self {
            redraws: std::io::stderr().is_terminal(),
            shown: String::new(),
        }
    }
}

impl ProgressLine {
    /// How far it is now. Elsewhere than in a terminal that is told once: a log is not to be filled by a bar.
    pub fn show(&mut self, line: &str) {
        match self.redraws {
            true if self.shown != line => eprint!("\r\x1b[K{line}"),
            false if self.shown.is_empty() => eprintln!("{line}"),
            _ => return,
        }
        line.clone_into(&mut self.shown);
    }

    /// Something that stays.
    fn say(&mut self, line: &str) {
        self.end();
        eprintln!("{line}");
    }

    /// It is there, or will not be.
    pub fn end(&mut self) {
        if self.redraws && !self.shown.is_empty() {
            eprint!("\r\x1b[K");
            self.shown.clear();
        }
    }
}
