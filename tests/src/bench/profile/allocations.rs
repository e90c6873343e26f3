//! Who allocates in a CKB import, against jemalloc's own profiles of a node that was built with `profiling`: of one stretch of the same
//! import, and, of the node as it is released, of another import of the same blocks.

use ckb_probe_profiles::{Profile, pprof::Limits};
use ckb_probe_testkit::jeprof::{Allocated, Jeprof};

use super::Profiling;
use crate::bench::prelude::*;

/// Bytes that a sample of jemalloc's stands for, by their power of two: some 2,000 samples a second.
const SAMPLE: u32 = 17;

/// Bytes from one of its profiles to the next, likewise: each second.
const DUMP: u32 = 28;

/// Those that are held against each other, by their numbers: the first of an import is of its beginning.
const FIRST: usize = 2;
const LAST: usize = 10;

/// Until a node has allocated so much.
const PATIENCE: Duration = Duration::from_secs(300);

/// Until a node that was just executed has its allocator in its memory.
const LOADED: Duration = Duration::from_millis(50);

/// Until it samples: before, it tries out how functions are attached to.
const BEGIN: Duration = Duration::from_secs(60);

/// The program that it meets an allocator by.
const PROGRAM: &str = "hit";

/// What is written for the sampler's stacks.
const FILE: &str = "allocations.pb.gz";

const ROWS: [Row; 5] = table! {
    "a stretch: share of a caller off by, of ten" = "stretch.off" in "points", Within(3.0);
    "a stretch: all that is told, of what jeprof tells" = "stretch.told" in "%";
    "as released, beside another import: share of a caller off by, of ten" = "released.off" in "points", Within(3.0);
    "as released, beside another import: all that is told, of what jeprof tells" = "released.told" in "%";
    "jeprof itself, of the caller of which it is least sure" = "stretch.error" in "points";
};

pub async fn run(bench: &mut Bench) -> Result<()> {
    let mut series = Series::default();
    for _ in 0..bench.settings.rounds {
        let (stretch, whole) = with_profiles(&bench.settings).await?;
        series.extend("stretch", stretch);
        series.extend("released", released(&bench.settings, &whole).await?);
    }
    bench.tell("profile-allocations: a CKB import: ", &series, &ROWS);
    Ok(())
}

/// An import by the node that has profiles: what is told of a stretch of it, and what jemalloc says of all of it.
async fn with_profiles(settings: &Settings) -> Result<(Found, Allocated)> {
    let node = &settings.ckb_profiling;
    let folder = in_folder(settings, "jeprof")?;
    // Profiles of an import before this one.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(Failure::at(&folder))?;
    let options = format!(
        "prof:true,prof_accum:true,prof_final:true,lg_prof_sample:{SAMPLE},lg_prof_interval:{DUMP},prof_prefix:{}",
        folder.join("import").display()
    );
    let with = Settings {
        ckb: node.clone(),
        ..settings.clone()
    };
    let container = Container::new(1);
    let import = Import::under(&with, &container, &[("MALLOC_CONF", &options)])?;
    let process = import.process().await?;
    let first = dump(&folder, &format!(".i{FIRST}.")).await?;
    // Nothing is allocated from its profile until it is sampled, nor from the last one until it is not.
    let stopped = process.stop().await?;
    let profiling = sampled(settings, process).await?;
    drop(stopped);
    let last = dump(&folder, &format!(".i{LAST}.")).await?;
    let stopped = process.stop().await?;
    let told = told(profiling).await?;
    drop(stopped);
    import.finish().await?;
    let of_all = dump(&folder, ".f.").await?;
    let jeprof = Jeprof {
        script: node.with_file_name("jeprof"),
        program: node.clone(),
    };
    let stretch = beside(&jeprof.between(Some(&first), &last), &told);
    Ok((stretch, jeprof.between(None, &of_all)))
}

/// An import by the node as it is released: what is told of it, beside what another one allocated.
async fn released(settings: &Settings, other: &Allocated) -> Result<Found> {
    let container = Container::new(1);
    let import = Import::start(settings, &container)?;
    let process = import.process().await?;
    sleep(LOADED).await;
    let stopped = process.stop().await?;
    let profiling = sampled(settings, process).await?;
    drop(stopped);
    import.finish().await?;
    Ok(beside(other, &told(profiling).await?))
}

/// Has who allocates in it sampled, from now on.
async fn sampled(settings: &Settings, process: Process) -> Result<Profiling> {
    let options = ["--mode", "allocations"];
    let profiling = Profiling::start(settings, 2, process, FILE, &options).await?;
    wait::until("the allocator to be attached to", BEGIN, async || {
        let linked = account::is_linked(profiling.process(), PROGRAM).await?;
        expect(linked, format!("a link of {PROGRAM}"), || "none")
    })
    .await?;
    Ok(profiling)
}

/// The profile of this kind and number, once it is begun, which is when it is taken.
async fn dump(folder: &Path, number: &str) -> Result<PathBuf> {
    wait::closely("a profile of jemalloc", PATIENCE, async || {
        let files = fs::read_dir(folder).map_err(Failure::at(folder))?;
        let mut paths = files.flatten().map(|file| file.path());
        paths
            .find(|path| path.to_string_lossy().contains(number))
            .ok_or_else(|| Failure::missing(format!("a profile {number:?}")))
    })
    .await
}

/// What was told of it.
async fn told(profiling: Profiling) -> Result<Allocated> {
    let file = profiling.stop().await?.file;
    let bytes = fs::read(&file).map_err(Failure::at(&file))?;
    let profile =
        Profile::from_pprof(&bytes, &Limits::PART).map_err(Failure::format("a profile"))?;
    Ok(Allocated::told(&profile))
}

/// What differs most of the callers with most, and of all.
fn beside(known: &Allocated, told: &Allocated) -> Found {
    let callers = known.beside(told, SAMPLE);
    for caller in &callers {
        println!(
            "    {:5.2} % (± {:.2}), told {:5.2} %  {}",
            caller.known, caller.error, caller.told, caller.name
        );
    }
    let greatest = |of: &dyn Fn(usize) -> f64| {
        let all = (0..callers.len()).map(of);
        all.max_by(|one, other| one.abs().total_cmp(&other.abs()))
            .unwrap_or(f64::INFINITY)
    };
    vec![
        ("off", greatest(&|index| callers[index].off())),
        ("error", greatest(&|index| callers[index].error)),
        (
            "told",
            100.0 * told.bytes() as f64 / known.bytes().max(1) as f64,
        ),
    ]
}
