//! Imports of CKB chains: the peak load.

use std::fs::File;

use super::prelude::*;

/// Longer than any import may take.
const LIMIT: Duration = Duration::from_secs(300);

/// From the container's start until its process is the node.
const EXEC: Duration = Duration::from_secs(5);

/// What an import took.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    /// From its start to its end.
    pub wall: Duration,
    /// CPU time of all of its threads.
    pub cpu: Duration,
}

impl Took {
    /// Both, in seconds.
    pub fn found(self) -> Found {
        vec![
            ("wall", self.wall.as_secs_f64()),
            ("cpu", self.cpu.as_secs_f64()),
        ]
    }
}

/// By how much imports were slower than others, and took more CPU time. Bounds are on
/// the first, which is what a user notices.
pub fn tell_more(bench: &mut Bench, family: &str, series: &Series, rows: &[Row]) {
    bench.tell_as(
        |row| format!("{family}: {row}, slower"),
        &series.part("wall"),
        rows,
    );
    let unbound: Vec<Row> = rows
        .iter()
        .map(|row| Row {
            bound: None,
            ..*row
        })
        .collect();
    let name = |row: &str| format!("{family}: {row}, more CPU time");
    bench.tell_as(name, &series.part("cpu"), &unbound);
}

/// A running import.
pub struct Import<'a> {
    settings: &'a Settings,
    chain: &'a Path,
    container: &'a Container,
    child: Child,
    started: Instant,
    cpu_before: Duration,
    data: PathBuf,
    output: PathBuf,
}

impl<'a> Import<'a> {
    /// Starts one of the empty blocks into a fresh folder on disk.
    pub fn start(settings: &'a Settings, container: &'a Container) -> Result<Self> {
        Self::of(settings, &settings.chain, container, &[])
    }

    /// The same, with variables in its environment.
    pub fn under(
        settings: &'a Settings,
        container: &'a Container,
        variables: &[(&str, &str)],
    ) -> Result<Self> {
        Self::run(settings, &settings.chain, container, &[], variables)
    }

    /// The same of a chain that scripts/build-chain.sh made, with options of `ckb import`.
    pub fn of(
        settings: &'a Settings,
        chain: &'a Path,
        container: &'a Container,
        options: &[&str],
    ) -> Result<Self> {
        Self::run(settings, chain, container, options, &[])
    }

    fn run(
        settings: &'a Settings,
        chain: &'a Path,
        container: &'a Container,
        options: &[&str],
        variables: &[(&str, &str)],
    ) -> Result<Self> {
        let data = in_folder(settings, "import")?;
        if data.exists() {
            fs::remove_dir_all(&data).map_err(Failure::at(&data))?;
        }
        copy(&chain.join("config"), &data)?;
        // What was written before must not be written now.
        rustix::fs::sync();
        let output = in_folder(settings, "import.log")?;
        let log = File::create(&output).map_err(Failure::at(&output))?;
        let errors = log.try_clone().map_err(Failure::at(&output))?;
        let blocks = chain.join("blocks.jsonl");
        let arguments = [Path::new("import"), Path::new("-C"), &data, &blocks];
        let arguments = arguments.into_iter().chain(options.iter().map(Path::new));
        let cpu_before = container.cpu_time();
        let started = Instant::now();
        let child = command(container, &settings.ckb, arguments)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .envs(variables.iter().copied())
            .spawn()
            .map_err(Failure::system("ckb import"))?;
        Ok(Self {
            settings,
            chain,
            container,
            child,
            started,
            cpu_before,
            data,
            output,
        })
    }

    /// Its process, when that has become the node.
    pub async fn process(&self) -> Result<Process> {
        let process = of(&self.child)?;
        wait::closely("the import to be executed", EXEC, async || {
            let executable = fs::read_link(process.path("").with_file_name("exe"));
            let name = executable.as_ref().ok().and_then(|path| path.file_name());
            expect(
                name == self.settings.ckb.file_name(),
                self.settings.ckb.display().to_string(),
                || format!("{name:?}"),
            )
        })
        .await?;
        Ok(process)
    }

    /// Waits for its end, and makes sure that the whole chain was imported.
    pub async fn finish(mut self) -> Result<Took> {
        let ended = tokio::time::timeout(LIMIT, self.child.wait()).await;
        let took = Took {
            wall: self.started.elapsed(),
            cpu: self.container.cpu_time().saturating_sub(self.cpu_before),
        };
        let text = |path: &Path| fs::read_to_string(path).map_err(Failure::at(path));
        let (printed, tip) = (text(&self.output)?, text(&self.chain.join("tip"))?);
        let last = printed.lines().rfind(|line| line.contains("urrent tip is"));
        expect(
            matches!(ended, Ok(Ok(status)) if status.success())
                && last.is_some_and(|line| line.contains(tip.trim())),
            format!("an import up to the block {}", tip.trim()),
            || format!("{ended:?}, {last:?}"),
        )?;
        fs::remove_dir_all(&self.data).map_err(Failure::at(&self.data))?;
        Ok(took)
    }
}

/// Copies a folder and everything in it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).map_err(Failure::at(to))?;
    for entry in fs::read_dir(from).map_err(Failure::at(from))?.flatten() {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy(&source, &target)?;
        } else {
            fs::copy(&source, &target).map_err(Failure::at(&source))?;
        }
    }
    Ok(())
}
