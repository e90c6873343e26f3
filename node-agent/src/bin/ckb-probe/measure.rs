//! One kind of a process, measured and shown until it is over.

use std::{collections::BTreeMap, time::Duration};

use ckb_probe_agent::{
    export::span_sink::SpanSink,
    host::{HostError, Session, find_process},
    kernel::Execs,
    observe::Process,
    preflight::preflight,
};
use ckb_probe_crds::{KindSpec, Name, report::CUT};
use ckb_probe_kubectl::terminal_columns;
use ckb_probe_traces::Settings;
use ckb_probe_views::unlisted::Sampled;
use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use super::{
    CliError, HowArguments, Outcome,
    exporting::{Figures, LAST_SPANS, QUEUE},
    intervals::Ends,
    slow, table,
};

/// Until the time is up, the process ends, or somebody interrupts.
pub async fn run(how: HowArguments, question: KindSpec) -> Result<Outcome, CliError> {
    // Before the process is there: it takes half a second.
    let means = preflight(how.tier.tier).means;
    let process = if how.wait {
        wait_for_process(&how.process.executable).await?
    } else {
        find_process(how.process.pid, &how.process.executable)?
    };
    let ends = Ends::of(process.id)?;
    let mut flames = how.output.as_deref().map(slow::Flames::to).transpose()?;
    let spans = span_sink(how.otlp.as_deref())?;
    let mut figures = Figures::start(how.otlp.as_deref(), &process)?;
    let executable = process.executable.clone();
    let overhead = how.budget.overhead();
    let interval = how.interval.get();
    let descriptor = question.kind().descriptor();
    let mut session = Session::attach(means, process, question, overhead, interval)?;
    if let Some(spans) = spans {
        session.export(spans);
    }
    let lacks = session.lacks();
    if !lacks.is_empty() {
        eprintln!("ckb-probe: attached{lacks}");
    }
    let time = how.duration.map(ckb_probe_crds::Duration::get);
    let mut intervals = ends.intervals(interval, time)?;
    if how.events {
        intervals.tell_drains();
    }
    let mut sampled = Sampled::default();
    let mut is_over = false;
    while !is_over {
        let waited = intervals.next(&mut session).await?;
        is_over = waited.over.is_some();
        if waited.ends_interval() {
            session.close_interval()?;
        }
        say_renewals(&mut session);
        let events = session.told_events();
        if let Some(flames) = &mut flames {
            flames.add(&events, descriptor.row, &executable, session.instance());
        }
        if how.events {
            let text = lines(events.iter().map(|(_, line)| line));
            intervals.print(&mut session, text).await?;
        }
        if !waited.ends_interval() {
            continue;
        }
        // What the stacks of these lack is counted as they are told.
        session.read()?;
        if how.events {
            sampled.add(&session.instance().report(session.now()));
        }
        if how.json {
            let text = lines(&table::lines(descriptor, &session));
            intervals.print(&mut session, text).await?;
        } else if !how.events {
            let mut text = Vec::new();
            table::print(&mut text, descriptor, &session, terminal_columns())?;
            slow::print(&mut text, &events, descriptor.row)?;
            intervals.print(&mut session, text).await?;
        }
        is_over |= session.instance().must_detach().is_some();
        if let Some(figures) = &mut figures {
            figures.export(&session, is_over);
        }
    }
    let mut last: Vec<String> = sampled.told().into_iter().collect();
    let spans = session.end_export();
    let instance = session.instance();
    let detached = instance.must_detach();
    let of_calls = lost_of(&instance.lost);
    let report = instance.report(session.now());
    // Whoever reads the last words, or receives the last spans, may take their time.
    drop(session);
    if let Some(flames) = flames {
        flames.write()?;
    }
    last.extend(spans.end(LAST_SPANS));
    last.extend(figures.map(Figures::end));
    last.extend(intervals.unread().map(str::to_owned));
    last.extend(detached);
    last.extend(of_calls);
    for said in last {
        eprintln!("ckb-probe: {said}");
    }
    let mut rows = report.probes.iter().flat_map(|probe| &probe.rows);
    Ok(
        if descriptor.quiet || rows.any(|row| !row.total.is_idle()) {
            Outcome::Measured
        } else {
            Outcome::NothingCalled
        },
    )
}

/// Why the process was measured anew, as far as that was not said yet.
pub fn say_renewals(session: &mut Session) {
    for said in session.told_renewals() {
        eprintln!("ckb-probe: {said}");
    }
}

/// What there is to say of what was not seen, or not whole.
fn lost_of(all: &BTreeMap<Name, u64>) -> Vec<String> {
    let mut said = Vec::new();
    let cut = all.get(CUT).copied().unwrap_or_default();
    if cut > 0 {
        said.push(format!(
            "of {cut} calls the beginning was seen and not the end: they are counted, and not timed"
        ));
    }
    let lost = all.iter();
    let lost = lost.filter(|(what, count)| **count > 0 && **what != *CUT);
    let lost: Vec<String> = lost
        .map(|(what, count)| format!("{count} {what}"))
        .collect();
    if !lost.is_empty() {
        said.push(format!(
            "lost {} (events are counted and not listed; stacks and frames are missing from what is listed; sizes, arguments, \
             traceparents and payloads are of calls that were counted; the rest is in no figure)",
            lost.join(", ")
        ));
    }
    said
}

/// Where spans go. What the environment says wrong, which is perhaps meant for other programs, keeps nobody from measuring.
fn span_sink(endpoint: Option<&str>) -> Result<Option<SpanSink>, CliError> {
    let settings = Settings::new(endpoint, &|name| std::env::var(name).ok());
    let sink = settings.map_err(CliError::from).and_then(|settings| {
        let sink = settings.map(|settings| SpanSink::start(settings, QUEUE, None));
        Ok(sink.transpose()?)
    });
    match sink {
        Err(error) if endpoint.is_none() => {
            eprintln!("ckb-probe: no traces are exported: {error}");
            Ok(None)
        }
        sink => sink,
    }
}

/// Waits for an exec of it. Without the right to be told of execs, looks from time to time.
pub async fn wait_for_process(executable: &str) -> Result<Process, CliError> {
    const LOOK: Duration = Duration::from_secs(1);
    let mut execs = Execs::watch()
        .inspect_err(|error| eprintln!("ckb-probe: looking for the process once a second: {error}"))
        .ok();
    loop {
        match find_process(None, executable) {
            Err(HostError::NoProcess(_)) => {}
            found => return Ok(found?),
        }
        let look = Instant::now() + LOOK;
        match &mut execs {
            // An error shows again at the next look, and the process is found all the same.
            Some(execs) => drop(tokio::time::timeout_at(look, execs.next()).await),
            None => sleep_until(look).await,
        }
    }
}

/// Each in a line.
pub fn lines<'a>(lines: impl IntoIterator<Item = &'a Value>) -> String {
    lines.into_iter().map(|line| format!("{line}\n")).collect()
}
