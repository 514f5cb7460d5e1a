//! A program, the command and a server under the limits of a shell: all is as natively, or a
//! sentence says what cannot be. No signal ends a program for what the library does.

use std::fs;
use std::process::Output;
use std::time::Duration;

use outboard_e2e::{Driver, Folder, Outcome, Program, Server, command, dist};

/// Long enough for the slowest machine; without an end there is none.
const LIMIT: Duration = Duration::from_secs(120);

fn program(arguments: &[&str]) -> Program {
    let program = Program::new("lowered_limits").at_most(LIMIT);
    arguments.iter().fold(program, |program, argument| program.arg(argument))
}

fn server() -> Server {
    Server::start_with(&["--driver", Driver::chosen().name()], &[])
}

/// Runs it over TCP and in shared memory, and before that perhaps directly.
fn each_way(program: impl Fn() -> Program, directly: bool, check: impl Fn(&str, &Outcome)) {
    let server = server();
    if directly {
        check("directly", &program().directly());
    }
    check("over TCP", &program().through(&server));
    check("in shared memory", &program().sharing_memory().through(&server));
}

/// A script that runs the command under limits.
fn limited(folder: &Folder, limits: &str) -> String {
    let outboard = fs::canonicalize(dist().join("bin/outboard")).expect("it is there");
    let text = format!("#!/bin/sh\n{limits}\nexec {} \"$@\"\n", outboard.display());
    let script = folder.write("outboard", &text);
    folder.allow("outboard", 0o700);
    script
}

#[test]
fn limits_may_be_lowered_once_cuda_runs() {
    for which in ["files", "sizes", "locked"] {
        // NVIDIA's driver opens its compiler for the first kernel, and a descriptor for a pool.
        let directly = which != "files" || Driver::chosen() != Driver::Nvidia;
        each_way(
            || program(&[which]),
            directly,
            |way, outcome| {
                outcome.expect_success(&format!("{which} {way}"));
                assert_eq!(outcome.stdout, "all rounds\n", "{which} {way}");
            },
        );
    }
}

/// Shared memory is as files are: where none may be as large, a client on the server's machine
/// stays with TCP, and has its page-locked memory for itself where that does not fit.
#[test]
fn files_may_be_small_from_the_start() {
    for blocks in ["0", "1048576", "104857600"] {
        let limit = format!("ulimit -f {blocks} && exec \"$@\"");
        let under = ["sh", "-c", &limit, "sh"];
        let server = server();
        // A client may choose its way itself here, as outside of tests.
        let chosen = || program(&["locked"]).env("OUTBOARD_TRANSPORT", "auto").under(&under);
        chosen().through(&server).expect_success(&format!("ulimit -f {blocks}"));
        chosen().directly().expect_success(&format!("ulimit -f {blocks}, directly"));
    }
}

#[test]
fn a_server_that_has_only_a_socket_needs_shared_memory_and_the_command_says_so() {
    let folder = Folder::create();
    let socket = folder.path("socket");
    let server =
        Server::start_with(&["--driver", Driver::chosen().name(), "--socket", &socket], &[]);
    assert!(server.devices() > 0);
    let Output { status, stderr, .. } = std::process::Command::new(limited(&folder, "ulimit -f 0"))
        .args(["run", "--server", &format!("unix:{socket}"), "--", "true"])
        .env_remove("OUTBOARD_TRANSPORT")
        .output()
        .expect("outboard starts");
    let said = String::from_utf8_lossy(&stderr).replace("\n  │ ", " ");
    assert!(!status.success() && said.contains("OB0109") && said.contains("ulimit -f"), "{said}");
}

/// With few descriptors a program works, or a call fails and the log has the reason.
#[test]
fn few_descriptors_are_enough_or_a_sentence_says_what_lacks() {
    let server = server();
    for free in [0, 1, 2, 3, 6, 12] {
        let few = || program(&["few", &free.to_string()]).env("OUTBOARD_LOG", "1");
        let direct = few().directly();
        direct.expect_success(&format!("{free} directly"));
        let ways = [("over TCP", few()), ("in shared memory", few().sharing_memory())];
        for (way, program) in ways {
            let outcome = program.through(&server);
            let works = outcome.status.success() && outcome.stdout == "works\n";
            assert!(outcome.status.code().is_some(), "{free} {way}: {outcome:?}");
            assert!(works || outcome.stderr.contains("outboard: "), "{free} {way}: {outcome:?}");
            let enough = if way == "over TCP" { 3 } else { 12 };
            assert!(works || free < enough, "{free} {way}: {outcome:?}");
        }
    }
}

#[test]
fn the_command_needs_no_large_stack() {
    let folder = Folder::create();
    let server = server();
    let output = std::process::Command::new(limited(&folder, "ulimit -s 256"))
        .args(["run", "--server", server.address(), "--", "echo", "here"])
        .output()
        .expect("outboard starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "here\n", "{output:?}");
}

/// The server's own files in memory are errors then, and its end is a sentence.
#[test]
fn a_server_under_a_limit_of_files_says_so() {
    let folder = Folder::create();
    let output = std::process::Command::new(limited(&folder, "ulimit -f 0"))
        .args(["serve", "--driver", "cpu", "--listen", "127.0.0.1:0", "--socket", "none"])
        .args(["--admin", "none"])
        .output()
        .expect("outboard starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code().is_some_and(|code| code != 0), "{output:?}");
    assert!(said.contains("ulimit -a"), "{said}");
    // The command is still there for others.
    assert!(command().arg("--version").output().expect("outboard starts").status.success());
}
