//! `local`: this machine's own devices, by a server that is a program's own.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use outboard_e2e::{
    Driver, Folder, PATIENCE, Program, Server, command, dist, is_alive, processes_below, programs,
    within,
};
use outboard_test_support::skip;

/// What a program and its server find: the device under test, and a folder for sockets that is
/// empty.
fn surroundings(folder: &Folder) -> [(&'static str, String); 4] {
    [
        ("OUTBOARD_LOCAL_DRIVER", Driver::chosen().name().to_owned()),
        ("OUTBOARD_CPU_MEMORY", "256M".to_owned()),
        ("OUTBOARD_TRANSPORT", String::new()),
        ("XDG_RUNTIME_DIR", folder.display().to_string()),
    ]
}

fn program(name: &str, folder: &Folder) -> Program {
    let named = Program::new(name);
    surroundings(folder).iter().fold(named, |program, (name, value)| program.env(name, value))
}

/// `outboard run` with these arguments.
fn run(folder: &Folder, args: &[&str]) -> Command {
    let mut command = command();
    command.arg("run").args(args).envs(surroundings(folder)).stdout(Stdio::piped());
    command
}

/// Neither a socket nor anything else is there.
fn is_empty(folder: &Folder) -> bool {
    folder.read_dir().is_ok_and(|mut entries| entries.next().is_none())
}

#[track_caller]
fn expect_nothing_left(folder: &Folder) {
    assert!(within(PATIENCE, || is_empty(folder)), "the server goes with its program");
}

#[test]
fn a_program_uses_this_machine_s_own_device() {
    let folder = Folder::create();
    let said = program("vector_add", &folder).statistics_of_list("local/0");
    assert_eq!(said["transport"], "shm", "{said}");
    expect_nothing_left(&folder);
}

#[test]
fn beside_devices_of_other_servers() {
    let folder = Folder::create();
    let driver = ["--driver", Driver::chosen().name(), "--socket", "none"];
    let other = Server::start_with(&driver, &[("OUTBOARD_CPU_MEMORY", "256M")]);
    for list in [format!("{}/0,local/0", other.address()), format!("local/0,{}/0", other.address())]
    {
        let outcome = program("servers", &folder).arg("2").through_list(&list);
        outcome.expect_success("two machines");
        expect_nothing_left(&folder);
    }
}

/// The server listens at no port: whoever else is on this machine does not reach it.
#[test]
fn no_other_user_reaches_the_server() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::create();
    let mut running = program("endless", &folder).arg("1").start_through_list("local/0");
    running.wait_for_line("running");
    let below = processes_below(running.id());
    let is_server = |process: &&u32| {
        let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains("--private")
    };
    let server = *below.iter().find(is_server).expect("a child is the server");
    let own = |file: &str| {
        fs::read_to_string(format!("/proc/{server}/{file}")).expect("it is this user's process")
    };
    let sockets: Vec<String> = fs::read_dir(format!("/proc/{server}/fd"))
        .expect("it is this user's process")
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .filter_map(|link| {
            Some(link.to_str()?.strip_prefix("socket:[")?.trim_end_matches(']').into())
        })
        .collect();
    let over_tcp = own("net/tcp") + &own("net/tcp6");
    let listens = over_tcp.lines().filter_map(|line| line.split_whitespace().nth(9));
    let listens: Vec<&str> =
        listens.filter(|inode| sockets.iter().any(|socket| socket == inode)).collect();
    assert_eq!(listens, Vec::<&str>::new(), "no port is the server's");
    let inside = fs::read_dir(&*folder).expect("it is there").flatten().next();
    let mode = inside.expect("the server's folder").metadata().expect("it is there").permissions();
    assert_eq!(mode.mode() & 0o777, 0o700);
    // However the program ends.
    let programs = below.iter().filter(|process| **process != server);
    let program = *programs.into_iter().next().expect("the program is the other one");
    let program = rustix::process::Pid::from_raw(program as i32).expect("a process");
    rustix::process::kill_process(program, rustix::process::Signal::KILL).expect("it runs");
    assert!(!running.finish().status.success());
    assert!(within(PATIENCE, || !is_alive(server)));
    expect_nothing_left(&folder);
}

/// The program has the status and the signals that it has natively, and what it leaves running in
/// the background keeps the server.
#[test]
fn the_server_ends_with_the_last_program() {
    let folder = Folder::create();
    let status = run(&folder, &["--server", "local", "--", "sh", "-c", "exit 7"]).status();
    assert_eq!(status.expect("outboard starts").code(), Some(7));
    expect_nothing_left(&folder);
    let late = format!("(sleep 0.5; exec {}) & exit 3", programs().join("vector_add").display());
    let child = run(&folder, &["--server", "local", "--", "sh", "-c", &late])
        .spawn()
        .expect("outboard starts");
    // Its end is that of its output: of the program in the background.
    let outcome = child.wait_with_output().expect("it ends");
    assert_eq!(outcome.status.code(), Some(3));
    let said = String::from_utf8_lossy(&outcome.stdout);
    assert!(said.contains("sums right"), "{said}");
    expect_nothing_left(&folder);
}

#[test]
fn a_program_whose_outboard_run_is_killed_goes_on() {
    let folder = Folder::create();
    let end = folder.path("end");
    let sockets = Folder::create();
    let mut child = run(&sockets, &["--server", "local", "--"])
        .args([programs().join("each_device").as_os_str(), folder.as_os_str()])
        .spawn()
        .expect("outboard starts");
    let rounds = || fs::metadata(folder.path("rounds.0")).map_or(0, |file| file.len());
    assert!(within(PATIENCE, || rounds() > 2), "it works");
    child.kill().expect("it runs");
    child.wait().expect("it was started here");
    let before = rounds();
    assert!(within(PATIENCE, || rounds() > before + 3), "its program goes on");
    fs::write(&end, "").expect("the folder is there");
    expect_nothing_left(&sockets);
}

#[test]
fn what_cannot_be_is_said() {
    let folder = Folder::create();
    let said = run(&folder, &["--server", "local", "--", "true"])
        .env("OUTBOARD_LOCAL_DRIVER", folder.path("nothing.so"))
        .output()
        .expect("outboard starts");
    let text = String::from_utf8_lossy(&said.stderr);
    assert!(!said.status.success() && text.contains("OB0304"), "{text}");
    let said = command().args(["env", "--server", "local"]).output().expect("outboard starts");
    let text = String::from_utf8_lossy(&said.stderr);
    assert!(!said.status.success() && text.contains("`local` is offered by a server"), "{text}");
    // A program that was started without `outboard run` starts nothing.
    let outcome = program("vector_add", &folder)
        .env("OUTBOARD_SERVER", "local/0")
        .env("OUTBOARD_LOG", "1")
        .with_library();
    let text = &outcome.stderr;
    assert!(!outcome.status.success() && text.contains("OB0107"), "{text}");
    assert!(text.contains("start the program with `outboard run`"), "{text}");
    expect_nothing_left(&folder);
}

#[test]
fn a_machine_without_a_gpu_says_so() {
    if Driver::chosen() != Driver::Cpu || Path::new("/dev/nvidiactl").exists() {
        skip!("this machine has a GPU");
    }
    let folder = Folder::create();
    let said = run(&folder, &["--server", "local", "--", "true"])
        .env("OUTBOARD_LOCAL_DRIVER", "")
        // As in a shell that has evaluated `outboard env`: the client library is no driver.
        .env("LD_LIBRARY_PATH", dist().join("lib/outboard/client"))
        .output()
        .expect("outboard starts");
    let text = String::from_utf8_lossy(&said.stderr);
    assert!(!said.status.success() && text.contains("OB0301"), "{text}");
    assert!(text.contains("OUTBOARD_LOCAL_DRIVER=cpu"), "{text}");
    assert!(is_empty(&folder));
}

#[test]
fn the_devices_of_this_machine_are_listed_and_checked() {
    let folder = Folder::create();
    for command_line in [&["devices", "--json"][..], &["doctor", "--json"]] {
        let mut command = command();
        command.args(command_line).args(["--server", "local"]).envs(surroundings(&folder));
        let said = command.output().expect("outboard starts");
        let text = String::from_utf8_lossy(&said.stdout);
        assert!(said.status.success() && text.contains("local"), "{said:?}");
        assert!(!text.contains("outboard-local"), "the socket is nobody's affair: {text}");
    }
    assert!(within(Duration::from_secs(20), || is_empty(&folder)));
}
