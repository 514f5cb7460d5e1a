//! Servers that `outboard run` starts on machines which ssh leads to: by Debian's sshd, which a
//! user runs in namespaces.

// The figure that it measures is what it is for.
#![allow(clippy::print_stdout)]

use std::fs;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use outboard_e2e::sshd::{Machine, Sshd};
use outboard_e2e::{
    Driver, Folder, Lines, Running, Terminal, is_alive, one_line, processes_below, programs, within,
};
use outboard_test_support::skip;

/// An sshd, or the test is skipped.
macro_rules! sshd {
    ($machine:expr) => {
        match Sshd::start($machine) {
            Ok(sshd) => sshd,
            Err(why) => skip!("{why}"),
        }
    };
}

/// A first call takes so long on a machine that does nothing else; here, tests run beside it.
const SOON: Duration = Duration::from_secs(5);
/// By then a program is told that its server is gone.
const TOLD: Duration = Duration::from_secs(60);

fn text(said: &Output) -> String {
    assert!(said.status.success(), "{said:?}");
    String::from_utf8_lossy(&said.stdout).into_owned()
}

/// What a command that fails says, in one line.
#[track_caller]
fn failure(said: &Output) -> String {
    assert!(!said.status.success(), "{said:?}");
    one_line(&said.stderr)
}

fn value(said: &str, name: &str) -> String {
    let line = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    line.unwrap_or_else(|| panic!("{name} is not in {said}")).to_owned()
}

#[test]
fn the_release_is_copied_once_and_again_if_it_is_damaged() {
    let sshd = sshd!(Machine { is_new: true, ..Machine::default() });
    let list = || sshd.command(&["devices", "--server", "ssh://gpu1/0"]).output().expect("it runs");
    let copied =
        |said: &Output| String::from_utf8_lossy(&said.stderr).contains("copying this release");
    let first = list();
    assert!(text(&first).contains("ssh://gpu1 over tcp+tls") && copied(&first), "{first:?}");
    let second = list();
    assert!(text(&second).contains("Outboard CPU") && !copied(&second), "{second:?}");
    let releases = sshd.home(".cache/outboard/releases");
    let all = || fs::read_dir(&releases).expect("it is there").flatten().collect::<Vec<_>>();
    assert_eq!(all().len(), 1, "nothing half-copied");
    let newest = all()[0].path();
    // Of old ones, those that were used last stay.
    for old in 0..6 {
        let old = releases.join(format!("0.0.{old}-old"));
        fs::create_dir(&old).expect("it is new");
        let touched = Command::new("touch").args(["-d", "3 days ago"]).arg(&old).status();
        assert!(touched.expect("there is touch").success());
    }
    // One byte of it, and as many as before.
    let outboard = newest.join("bin/outboard");
    let mut bytes = fs::read(&outboard).expect("it can be read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&outboard, &bytes).expect("it can be written");
    let third = list();
    assert!(text(&third).contains("Outboard CPU") && copied(&third), "{third:?}");
    bytes[middle] ^= 1;
    assert!(fs::read(&outboard).expect("it is there") == bytes);
    assert_eq!(all().len(), 4, "{:?}", all());
    sshd.expect_nothing_left();
}

/// And it is not copied to a machine that could not serve.
#[test]
fn a_machine_without_a_gpu_says_so_before_anything_is_copied() {
    if Driver::chosen() != Driver::Cpu {
        skip!("this machine has a GPU");
    }
    let sshd = sshd!(Machine { is_new: true, ..Machine::default() });
    let mut list = sshd.command(&["devices", "--server", "ssh://gpu1"]);
    let said = failure(&list.env("OUTBOARD_SSH_DRIVER", "").output().expect("it runs"));
    assert!(said.contains("OB0301") && said.contains("no NVIDIA GPU to offer at ssh://"), "{said}");
    assert!(said.contains("OUTBOARD_SSH_DRIVER=cpu") && !said.contains("copying"), "{said}");
    assert!(!sshd.home(".cache/outboard/releases").exists());
    sshd.expect_nothing_left();
}

#[test]
fn runs_that_copy_the_release_at_once_do_not_disturb_each_other() {
    let sshd = sshd!(Machine { is_new: true, ..Machine::default() });
    let start = || {
        let mut list = sshd.command(&["devices", "--server", "ssh://gpu1"]);
        list.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs")
    };
    let other = start();
    // At a terminal it says how far it is.
    let mut terminal = Terminal::run(&mut sshd.command(&["devices", "--server", "ssh://gpu1"]));
    assert!(terminal.shows("copying this release to ssh://gpu1: "), "{terminal:?}");
    assert!(terminal.shows(" MB/s, ") && terminal.shows("Outboard CPU"), "{terminal:?}");
    let said = other.wait_with_output().expect("it ends");
    assert!(text(&said).contains("Outboard CPU"));
    assert!(!String::from_utf8_lossy(&said.stderr).contains("MB/s"), "{said:?}");
    let releases = fs::read_dir(sshd.home(".cache/outboard/releases")).expect("it is there");
    assert_eq!(releases.count(), 1);
    sshd.expect_nothing_left();
}

#[test]
fn the_way_is_measured() {
    let sshd = sshd!(Machine::default()).with_release();
    let said = sshd.command(&["doctor", "--server", "ssh://gpu1"]).output().expect("it runs");
    let said = text(&said);
    assert!(said.contains("client of ssh://gpu1") && said.contains("ok    session"), "{said}");
    sshd.expect_nothing_left();
}

#[test]
fn a_program_runs_on_a_machine_that_ssh_leads_to() {
    let sshd = sshd!(Machine::default()).with_release();
    let said = sshd.program("vector_add").statistics_of_list("ssh://gpu1");
    assert_eq!(said["transport"], "tcp+tls", "{said}");
    sshd.expect_nothing_left();
    // Its status, and what it is told: where the server is, and nothing secret.
    let run = ["run", "--server", "ssh://gpu1/0,ssh://gpu2/0", "--", "sh", "-c", "env; exit 7"];
    let said = sshd.command(&run).output().expect("it runs");
    assert_eq!(said.status.code(), Some(7), "{said:?}");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(!said.contains("obt_"), "{said}");
    assert!(value(&said, "OUTBOARD_SERVERS").contains("token-file"), "{said}");
    sshd.expect_nothing_left();
    // From when ssh has connected to the end of a program that has used the device.
    let mut running = sshd.program("endless").arg("1").start_through_list("ssh://gpu1");
    running.wait_for_line("running");
    let taken = sshd.connected();
    println!("{taken:?} from ssh's connection to the first kernel's end");
    assert!(taken < SOON, "{taken:?}");
}

/// Each way reaches the server, with all connections of a session.
#[test]
fn bytes_go_straight_or_through_ssh() {
    let sshd = sshd!(Machine::default()).with_release();
    for (list, direct, through_ssh) in [
        ("ssh://gpu1", "", false),
        ("ssh://inner", "off", true),
        ("ssh://gpu1/0,ssh://gpu2/0", "off", true),
    ] {
        sshd.log.so_far();
        let count = list.split(',').count().to_string();
        let program = sshd.program("servers").arg(&count).env("OUTBOARD_SSH_DIRECT", direct);
        program.through_list(list).expect_success(list);
        sshd.expect_nothing_left();
        let said = sshd.log.so_far();
        let forwarded =
            said.iter().filter(|line| line.contains("server_request_direct_tcpip")).count();
        // One to see whether it answers, one of `outboard run`, and those of the program. The jump
        // host's is one more.
        assert_eq!(forwarded > 3, through_ssh, "{list} {direct}: {forwarded} {said:?}");
    }
}

/// A machine that only ssh leads to, by a pipe.
#[test]
fn a_machine_in_another_network_is_reached() {
    let sshd = sshd!(Machine::default()).with_release();
    if !Command::new("ip").arg("-V").output().is_ok_and(|said| said.status.success()) {
        skip!("there is no `ip`, which starts a network of its own");
    }
    let outcome = sshd.program("servers").arg("1").through_list("ssh://apart");
    outcome.expect_success("apart");
    sshd.expect_nothing_left();
}

/// Whoever has to be asked for a passphrase has an agent, which ssh asks for each connection.
#[test]
fn a_key_with_a_passphrase_is_used_by_an_agent() {
    let sshd = sshd!(Machine::default()).with_release();
    let list = |socket: &str| {
        let mut list = sshd.command(&["devices", "--server", "ssh://locked"]);
        list.env("SSH_AUTH_SOCK", socket).output().expect("it runs")
    };
    let said = failure(&list("/nowhere"));
    assert!(said.contains("Permission denied"), "{said}");
    let folder = Folder::create();
    let agent = sshd.agent(&folder);
    assert!(text(&list(&agent.socket)).contains("Outboard CPU"));
    let program = sshd.program("vector_add").env("SSH_AUTH_SOCK", &agent.socket);
    program.through_list("ssh://locked").expect_success("by an agent");
    sshd.expect_nothing_left();
}

/// What the user there has as a login shell is no matter, nor what it says at the beginning.
#[test]
fn login_shells_of_any_kind_start_a_server() {
    for (shell, settings) in [("fish", ".config/fish/config.fish"), ("tcsh", ".tcshrc")] {
        let sshd = sshd!(Machine { shell, ..Machine::default() });
        let settings = sshd.home(settings);
        fs::create_dir_all(settings.parent().expect("it has a folder")).expect("it is made");
        fs::write(settings, "echo hello from the settings\n").expect("it is written");
        let sshd = sshd.with_release();
        let list = sshd.command(&["devices", "--server", "ssh://gpu1"]).output();
        assert!(text(&list.expect("it runs")).contains("Outboard CPU"), "{shell}");
        sshd.program("vector_add").through_list("ssh://gpu1").expect_success(shell);
        assert!(sshd.has_used_shell(), "{shell}");
        sshd.expect_nothing_left();
    }
}

#[test]
fn busybox_is_all_that_a_machine_needs() {
    let sshd = sshd!(Machine { is_new: true, shell: "busybox", ..Machine::default() });
    for copied in [true, false] {
        let list = sshd.command(&["devices", "--server", "ssh://gpu1"]).output();
        let list = list.expect("it runs");
        assert!(text(&list).contains("Outboard CPU"), "{list:?}");
        let said = String::from_utf8_lossy(&list.stderr);
        assert_eq!(said.contains("copying this release"), copied, "{said}");
    }
    sshd.program("vector_add").through_list("ssh://gpu1").expect_success("busybox");
    assert!(sshd.has_used_shell());
    sshd.expect_nothing_left();
}

/// A program that goes on until its server is gone, and then ends with 3.
fn endless(sshd: &Sshd, direct: &str) -> Running {
    let program = sshd.program("endless").arg("1").env("OUTBOARD_RECONNECT", "1");
    let mut running = program.env("OUTBOARD_SSH_DIRECT", direct).start_through_list("ssh://gpu1");
    running.wait_for_line("running");
    running
}

#[test]
fn a_killed_run_leaves_nothing() {
    let sshd = sshd!(Machine::default()).with_release();
    let mut running = endless(&sshd, "");
    let program = processes_below(running.id());
    running.kill();
    // Its program is told.
    assert!(within(TOLD, || !program.iter().any(|process| is_alive(*process))), "{program:?}");
    sshd.expect_nothing_left();
}

/// What goes straight ends as well.
#[test]
fn a_lost_connection_ends_the_server_and_its_program_is_told() {
    let sshd = sshd!(Machine::default()).with_release();
    for direct in ["off", ""] {
        let running = endless(&sshd, direct);
        sshd.cut();
        let outcome = running.finish();
        assert_eq!(outcome.status.code(), Some(3), "{outcome:?}");
        assert!(outcome.taken < TOLD, "{outcome:?}");
        sshd.expect_nothing_left();
    }
}

/// And who waits for the program learns why.
#[test]
fn a_killed_server_leaves_nothing() {
    let sshd = sshd!(Machine::default()).with_release();
    let line =
        format!("{} 1; status=$?; sleep 1; exit $status", programs().join("endless").display());
    let mut running = sshd
        .command(&["run", "--server", "ssh://gpu1", "--", "sh", "-c", &line])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("outboard starts");
    let said = Lines::of(running.stdout.take());
    said.find("running");
    sshd.kill_servers();
    let ended = running.wait_with_output().expect("it ends");
    let told = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(3), "{told}");
    assert!(told.contains("the server at ssh://gpu1 has ended (status 137)"), "{told}");
    sshd.expect_nothing_left();
}

#[test]
fn what_cannot_be_is_said() {
    let sshd = sshd!(Machine::default()).with_release();
    let run = |list: &str, variables: &[(&str, &str)]| {
        let mut run = sshd.command(&["run", "--server", list, "--", "true"]);
        let said = run.envs(variables.iter().copied()).output().expect("it runs");
        sshd.expect_nothing_left();
        failure(&said)
    };
    let said = run("ssh://wrong", &[]);
    assert!(said.contains("IDENTIFICATION HAS CHANGED") && said.contains("OB0112"), "{said}");
    let said = run("ssh://gpu1,ssh://stranger@gpu2", &[]);
    assert!(said.contains("Permission denied") && said.contains("ssh://stranger@gpu2"), "{said}");
    let said = run("ssh://gpu1", &[("PATH", "/nowhere")]);
    assert!(said.contains("`ssh` cannot be started"), "{said}");
    let said = run("ssh://gpu1", &[("OUTBOARD_SSH_DIRECT", "perhaps")]);
    assert!(said.contains("OUTBOARD_SSH_DIRECT is `perhaps`"), "{said}");
    let said = run("ssh://gpu1/7", &[]);
    assert!(said.contains("no device 7"), "{said}");
    let said = run("ssh://gpu1", &[("OUTBOARD_SSH_DRIVER", "/nowhere/it's.so")]);
    assert!(said.contains("/nowhere/it's.so"), "{said}");
    if Driver::chosen() == Driver::Cpu {
        let said = run("ssh://gpu1", &[("OUTBOARD_SSH_DRIVER", "")]);
        assert!(said.contains("there is no NVIDIA GPU to offer"), "{said}");
    }
    // Without `outboard run`, there is nobody with whom the server would end.
    let said =
        failure(&sshd.command(&["env", "--server", "ssh://gpu1"]).output().expect("it runs"));
    assert!(said.contains("ssh://gpu1 is a server that ends with `outboard run`"), "{said}");
    let outcome = sshd
        .program("vector_add")
        .env("OUTBOARD_SERVER", "ssh://gpu1")
        .env("OUTBOARD_LOG", "1")
        .with_library();
    let said = &outcome.stderr;
    assert!(
        said.contains("OB0107") && said.contains("start the program with `outboard run`"),
        "{said}"
    );
}

/// Machines that refuse something.
#[test]
fn machines_that_lack_something_are_named() {
    let direct = ("OUTBOARD_SSH_DIRECT", "");
    let through = ("OUTBOARD_SSH_DIRECT", "off");
    for (machine, variable, wanted) in [
        (
            Machine {
                is_new: true,
                mounts: "mount -t tmpfs -o size=2m tmpfs $home",
                ..Machine::default()
            },
            direct,
            "No space left on device",
        ),
        (
            Machine {
                is_new: true,
                mounts: "mount -t tmpfs -o noexec tmpfs $home",
                ..Machine::default()
            },
            direct,
            "may be mounted noexec",
        ),
        (
            Machine { config: "AllowTcpForwarding no", ..Machine::default() },
            through,
            "AllowTcpForwarding",
        ),
        (
            Machine { config: "ForceCommand echo hello", ..Machine::default() },
            direct,
            "without an answer",
        ),
    ] {
        let sshd = sshd!(machine);
        let mut run = sshd.command(&["run", "--server", "ssh://gpu1", "--", "true"]);
        let said = failure(&run.envs([variable]).output().expect("it runs"));
        assert!(said.contains(wanted), "{machine:?}: {said}");
        sshd.expect_nothing_left();
        let releases = sshd.home(".cache/outboard/releases");
        let left = fs::read_dir(releases).map_or(0, |all| all.count());
        assert!(left <= 1, "nothing half-copied");
    }
    // Where nothing may be forwarded, a server can still be reached.
    let sshd =
        sshd!(Machine { config: "AllowTcpForwarding no", ..Machine::default() }).with_release();
    sshd.program("vector_add").through_list("ssh://gpu1").expect_success("without forwarding");
    sshd.expect_nothing_left();
}
