//! Workers are confined before they read a byte of their client. What each layer of the sandbox
//! stops is shown by `outboard-worker`'s own test.

use outboard_e2e::{Folder, Program, RawClient, Server, command, within};
use outboard_test_support::skip;
use outboard_wire::ObjectId;
use outboard_wire::messages::LinkCreate;
use outboard_wire::types::JitOptions;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A line of a thread's status.
fn field<'a>(status: &'a str, name: &str) -> &'a str {
    status.lines().find_map(|line| line.strip_prefix(name)).map_or("", str::trim)
}

fn statuses_of_a_worker(server: &Server) -> Vec<String> {
    let mut program = Program::new("endless").arg("4").start_through(server);
    program.wait_for_line("running");
    let tasks =
        fs::read_dir(format!("/proc/{}/task", server.only_worker())).expect("the worker runs");
    let statuses = tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("status")).ok())
        .collect();
    program.kill();
    statuses
}

#[test]
fn every_thread_of_a_worker_is_filtered_and_gains_no_privileges() {
    let server = Server::start_with(&["--driver", "cpu", "--sandbox", "strict"], &[]);
    let statuses = statuses_of_a_worker(&server);
    assert!(statuses.len() > 1, "a worker at work has several threads");
    for status in &statuses {
        assert_eq!(field(status, "NoNewPrivs:"), "1", "{status}");
        assert_eq!(field(status, "Seccomp:"), "2", "{status}");
    }
}

#[test]
fn workers_are_in_their_sandbox_unless_told_otherwise() {
    let server = Server::start_with(&["--driver", "cpu"], &[]);
    for status in &statuses_of_a_worker(&server) {
        assert_eq!(field(status, "Seccomp:"), "2", "{status}");
        assert_eq!(field(status, "CapEff:"), "0000000000000000", "{status}");
    }
    let server = Server::start_with(&["--driver", "cpu", "--sandbox", "off"], &[]);
    for status in &statuses_of_a_worker(&server) {
        assert_eq!(field(status, "Seccomp:"), field(&own_status(), "Seccomp:"), "{status}");
    }
}

/// What a worker that its client controls could empty, or write in another's name.
#[test]
fn a_worker_logs_by_its_server_and_has_no_descriptor_of_the_log() {
    let mut server = Server::start_with(&["--driver", "cpu"], &[]);
    let begin = Folder::create();
    let mut program = Program::new("steady").arg(&begin.path("end")).start_through(&server);
    program.wait_for_line("running");
    let worker = server.only_worker();
    let descriptors = |process: u32| -> Vec<PathBuf> {
        let all = fs::read_dir(format!("/proc/{process}/fd")).expect("the process runs");
        all.flatten().filter_map(|entry| fs::read_link(entry.path()).ok()).collect()
    };
    let log = fs::read_link(format!("/proc/{}/fd/2", server.id())).expect("it has one");
    assert!(!descriptors(worker).contains(&log), "{log:?}");
    // The next server writes what was said while there was none.
    server.kill();
    server.start_again();
    let whose = format!("\"worker\":{worker}");
    let says_so =
        |line: &str| line.contains("its session goes on and waits") && line.contains(&whose);
    assert!(
        within(Duration::from_secs(60), || server.log().lines().any(says_so)),
        "{}",
        server.log()
    );
    server.expect_logged("the next server goes on with the session");
    assert!(!descriptors(worker).contains(&log));
    begin.write("end", "");
    program.finish().expect_success("the program");
}

#[test]
fn a_server_that_perf_watches_runs_kernels() {
    let server = Server::start_with(&["--driver", "cpu"], &[("PERF_BUILDID_DIR", "/tmp")]);
    Program::new("symbols").through(&server).expect_success("symbols");
}

/// A cache of code that all workers write is none for clients who are nothing to each other.
#[test]
fn workers_share_compiled_code_only_among_clients_that_are_one() {
    let folder = Folder::create();
    let state = folder.path("state");
    let is_off = |flags: &[&str]| {
        let all = [&["--driver", "cpu", "--state", &state], flags].concat();
        let server = Server::start_with(&all, &[]);
        let mut program = Program::new("endless").arg("4").start_through(&server);
        program.wait_for_line("running");
        let environment =
            fs::read(format!("/proc/{}/environ", server.only_worker())).expect("the worker runs");
        program.kill();
        environment.split(|byte| *byte == 0).any(|line| line == b"CUDA_CACHE_DISABLE=1")
    };
    assert!(!is_off(&[]) && is_off(&["--compute-cache", "off"]));
    assert!(is_off(&["--socket-access", "all"]), "other users of this machine");
    assert!(!is_off(&["--socket-access", "all", "--compute-cache", "shared"]), "unless told so");
}

/// Root's server can give its workers another user; anybody else's says that it cannot.
#[test]
fn workers_can_have_a_user_of_their_own() {
    let folder = Folder::create();
    let cache = folder.path("images");
    let arguments = [
        "--driver",
        "cpu",
        "--sandbox",
        "strict",
        "--worker-user",
        "nobody",
        "--image-cache",
        &cache,
    ];
    if field(&own_status(), "Uid:").split_whitespace().nth(1) != Some("0") {
        let failed = command().arg("serve").args(arguments).output().expect("it starts");
        let said = String::from_utf8_lossy(&failed.stderr);
        assert!(!failed.status.success() && said.contains("OB0307"), "{said}");
        skip!("only root's server can; this one says that it cannot");
    }
    let server = Server::start_with(&arguments, &[]);
    for status in &statuses_of_a_worker(&server) {
        let users: Vec<&str> = field(status, "Uid:").split_whitespace().collect();
        let nobody = fs::metadata(&cache)
            .map(|folder| std::os::unix::fs::MetadataExt::uid(&folder).to_string());
        let nobody = nobody.expect("the server has made the folder");
        assert!(nobody != "0" && users.iter().all(|user| *user == nobody), "{status}");
        assert_eq!(field(status, "CapPrm:"), "0000000000000000", "{status}");
    }
    for program in ["ipc", "device_printf", "big_copy", "mapped_memory"] {
        Program::new(program).through(&server).expect_success(program);
    }
    let kept = fs::read_dir(&cache).expect("root reads everything").count();
    assert!(kept > 0, "workers keep images as that user");
}

/// A control group of a test's own, which a server can divide; it goes with its value.
struct Group(PathBuf);

impl Group {
    /// Below the root of version 2, or why that cannot be. `OUTBOARD_TEST_CGROUPS=1` says that it
    /// must be.
    fn create(name: &str) -> Result<Group, String> {
        let group = Group::try_create(name);
        if std::env::var_os("OUTBOARD_TEST_CGROUPS").is_some() {
            group.as_ref().expect("OUTBOARD_TEST_CGROUPS is set");
        }
        group
    }

    fn try_create(name: &str) -> Result<Group, String> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("this process has mounts");
        let mount = mounts
            .lines()
            .find(|line| line.contains(" - cgroup2 "))
            .and_then(|line| line.split(' ').nth(4))
            .ok_or("no control groups of version 2 are mounted")?;
        // A group with processes has nothing to hand down, except for the system's root.
        let _ = fs::write(format!("{mount}/cgroup.subtree_control"), "+memory +pids");
        let path = Path::new(mount).join(format!("outboard-e2e-{name}-{}", std::process::id()));
        fs::create_dir(&path)
            .map_err(|error| format!("no control group can be made in {mount}: {error}"))?;
        let group = Group(path);
        let has = fs::read_to_string(group.0.join("cgroup.controllers")).unwrap_or_default();
        let has_both = ["memory", "pids"]
            .iter()
            .all(|wanted| has.split_whitespace().any(|one| one == *wanted));
        if has_both { Ok(group) } else { Err(format!("{mount} hands down no controllers")) }
    }

    fn name(&self) -> &str {
        self.0.to_str().expect("the folder's name is text")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(self.0.join("server"));
        let _ = fs::remove_dir(&self.0);
    }
}

/// A server that is to hold limits says so and does not serve where it cannot.
#[test]
fn without_a_control_group_to_divide_a_server_says_why_not() {
    let folder = Folder::create();
    for group in ["/nowhere", folder.to_str().expect("a plain path")] {
        let arguments = ["--driver", "cpu", "--worker-cgroup", group, "--worker-memory", "400M"];
        let server = Server::start_unless_refused(&arguments, "OB0308");
        assert!(server.is_none(), "{group} is no control group");
    }
}

/// A worker has a control group of its own, with its limits, and ends in it when it takes more.
#[test]
fn workers_have_control_groups() {
    let group = match Group::create("limits") {
        Ok(group) => group,
        Err(why) => skip!("{why}"),
    };
    let arguments = [
        "--driver",
        "cpu",
        "--worker-cgroup",
        group.name(),
        "--worker-memory",
        "400M",
        "--worker-tasks",
        "200",
    ];
    let server = Server::start_with(&arguments, &[]);
    let mut program = Program::new("endless").arg("4").start_through(&server);
    program.wait_for_line("running");
    let worker = server.only_worker();
    let own = group.0.join(format!("worker-{worker}"));
    let said = |file: &str| {
        fs::read_to_string(own.join(file)).expect("the group is there").trim().to_owned()
    };
    assert_eq!(said("cgroup.procs"), worker.to_string());
    assert_eq!((said("memory.max").as_str(), said("pids.max").as_str()), ("419430400", "200"));
    program.kill();
    assert!(within(Duration::from_secs(60), || !own.exists()), "the group goes with its worker");
    // The software device's memory is its worker's.
    let greedy = Program::new("big_copy").arg("600").through(&server);
    assert!(!greedy.status.success(), "600 MiB are more than the worker may have");
    Program::new("vector_add").through(&server).expect_success("vector_add");
    drop(server);
}

/// A worker has no more threads than its group lets it: what needs one fails in it, and others do
/// not notice.
#[test]
fn workers_have_no_more_tasks_than_they_may() {
    const LINKS: u64 = 32;
    let group = match Group::create("tasks") {
        Ok(group) => group,
        Err(why) => skip!("{why}"),
    };
    let arguments = ["--driver", "cpu", "--worker-cgroup", group.name(), "--worker-tasks", "24"];
    let server = Server::start_with(&arguments, &[]);
    let mut client = RawClient::connect(&server);
    client.open();
    let worker = server.only_worker();
    let said = |file: &str| {
        fs::read_to_string(group.0.join(format!("worker-{worker}")).join(file)).expect("a limit")
    };
    assert_eq!(said("pids.max").trim(), "24");
    assert_ne!(said("memory.max").trim(), "max", "what is not said is limited all the same");
    let made = (1..=LINKS).filter(|link| {
        let create = LinkCreate { link: ObjectId(*link), options: JitOptions::default() };
        client.call(&create, |_| ()).is_ok()
    });
    let made = made.count();
    assert!((1..LINKS as usize).contains(&made), "{made} threads for links within 24");
    Program::new("vector_add").through(&server).expect_success("a neighbour");
    drop((client, server));
}

/// What a sandbox might forbid by mistake: compiled code, host threads, memory shared by processes,
/// errors, copies on lanes.
#[test]
fn programs_run_in_the_sandbox() {
    let server = Server::start_with(&["--driver", "cpu", "--sandbox", "strict"], &[]);
    for program in [
        "thrust_algorithms",
        "ipc",
        "shareable_handles",
        "device_printf",
        "big_copy",
        "fault_trap",
        "mapped_memory",
    ] {
        Program::new(program).through(&server).expect_success(program);
    }
}

fn own_status() -> String {
    fs::read_to_string("/proc/self/status").expect("this process has a status")
}
