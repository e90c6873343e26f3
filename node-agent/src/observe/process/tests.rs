use super::*;

#[test]
fn this_test_finds_itself_and_its_cpu_time() {
    let own = std::env::current_exe().unwrap();
    let name = own.file_name().unwrap().to_str().unwrap().to_string();
    let found = processes(|executable| executable == name)
        .unwrap()
        .processes;
    let me = found
        .iter()
        .find(|process| process.id.pid == std::process::id())
        .unwrap();
    assert_eq!(me.executable, name);
    cpu_time(me.id).unwrap();
}

#[test]
fn a_process_of_another_start_time_is_not_taken_for_this_one() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _guard = runtime.enter();
    let id = ProcessId {
        pid: std::process::id(),
        start_ticks: 1,
    };
    assert!(matches!(Exit::of(id), Err(ObserveError::Watch { .. })));
}

#[test]
fn the_end_of_a_process_is_told() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let stat = proc::Process::new(child.id() as i32)
            .unwrap()
            .stat()
            .unwrap();
        let exit = Exit::of(ProcessId {
            pid: child.id(),
            start_ticks: stat.starttime,
        })
        .unwrap();
        child.kill().unwrap();
        tokio::time::timeout(Duration::from_secs(5), exit.wait())
            .await
            .unwrap();
        child.wait().unwrap();
    });
}
