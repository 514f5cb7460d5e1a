//! A program ends with its own exit code, whatever its threads and streams are at, and leaves its
//! profile however it ends.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use outboard_e2e::{Driver, Folder, Outcome, Program, Server, command, programs};

/// The exit code that the program chooses.
const CODE: i32 = 7;

/// Long enough for the slowest machine; without an end there is none.
const LIMIT: Duration = Duration::from_secs(60);

fn program(how: &str) -> Program {
    Program::new("ends").arg(how).at_most(LIMIT)
}

/// Runs it directly, over TCP and in shared memory.
fn each_way(how: &str, check: impl Fn(&str, &Outcome)) {
    let server = Server::start_with(&["--driver", Driver::chosen().name()], &[]);
    check("directly", &program(how).directly());
    check("over TCP", &program(how).through(&server));
    check("in shared memory", &program(how).sharing_memory().through(&server));
}

fn ends_with_its_code(how: &str) {
    // Which thread is where differs each time.
    for _ in 0..5 {
        each_way(how, |way, outcome| {
            // NVIDIA's own driver crashes then (seen with release 580).
            if way == "directly" && Driver::chosen() == Driver::Nvidia {
                return;
            }
            assert_eq!(outcome.status.code(), Some(CODE), "{how} {way}: {outcome:?}");
        });
    }
}

#[test]
fn exit_while_threads_are_in_calls() {
    ends_with_its_code("busy");
}

#[test]
fn exit_by_another_thread_while_threads_are_in_calls() {
    ends_with_its_code("elsewhere");
}

#[test]
fn exit_in_a_function_that_a_stream_calls() {
    ends_with_its_code("callback");
}

/// Seen with NVIDIA's driver: handlers that were there before CUDA find it gone.
#[test]
fn handlers_from_before_cuda_find_it_gone() {
    let wanted = "after: 0 0 0 0\nbefore: 4 4 4 4\ndestroyed: 4 4 4 4\n";
    each_way("handlers", |way, outcome| {
        assert_eq!(outcome.status.code(), Some(CODE), "{way}: {outcome:?}");
        assert_eq!(outcome.stdout, wanted, "{way}");
    });
}

/// Programs in Go end by the system call, and others abort.
#[test]
fn a_profile_is_left_however_a_program_ends() {
    let server = Server::start_with(&["--driver", Driver::chosen().name()], &[]);
    for how in ["abort", "killed", "system"] {
        let folder = Folder::create();
        let file = folder.path("profile");
        let outcome = program(how).env("OUTBOARD_PROFILE", &file).through(&server);
        assert!(outcome.status.signal().is_some() != (how == "system"), "{how}: {outcome:?}");
        let text = std::fs::read(&file).unwrap_or_else(|error| panic!("{how}: {error}"));
        let profile: serde_json::Value = serde_json::from_slice(&text).expect("it is JSON");
        let launches: u64 = profile["functions"]
            .as_object()
            .expect("functions have counters")
            .iter()
            .filter(|(name, _)| name.starts_with("cuLaunchKernel"))
            .filter_map(|(_, counts)| counts["calls"].as_u64())
            .sum();
        assert_eq!(launches, 100, "{how}: {profile}");
        assert_eq!(profile["transport"], "tcp", "{how}");
    }
    // Processes that another one forks, and one that becomes a program, and another one then.
    let program = programs().join("ends").display().to_string();
    let each = r#""$0" abort; "$0" killed; exec "$0" becomes"#;
    let mut stats = command();
    stats.args(["run", "--server", server.address(), "--stats", "--", "sh", "-c", each, &program]);
    let said = stats.env("OUTBOARD_TRANSPORT", "tcp").output().expect("the command starts");
    assert_eq!(said.status.code(), Some(CODE));
    let text = String::from_utf8_lossy(&said.stderr);
    assert_eq!(text.matches("ends (process ").count(), 4, "{text}");
    let launches = text.lines().find(|line| line.starts_with("cuLaunchKernel")).unwrap_or_default();
    assert_eq!(launches.split_whitespace().nth(1), Some("400"), "{text}");
}
