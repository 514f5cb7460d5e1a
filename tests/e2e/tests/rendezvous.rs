//! Servers that a job starts for its own programs: they write themselves into a folder, and end
//! with their clients and with the job.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use outboard_e2e::{Folder, PATIENCE, Program, Server, command, dist, is_alive, within};

/// Ends of servers that are told to end soon.
const SOON: Duration = Duration::from_secs(20);

/// A server that writes itself into the folder.
fn server(folder: &str, more: &[&str]) -> Server {
    let once = ["--driver", "cpu", "--once", "--once-after", "1", "--rendezvous", folder];
    Server::start_with(&[&once[..], more].concat(), &[])
}

fn files(folder: &str) -> Vec<String> {
    let listed = fs::read_dir(folder).expect("the folder is there");
    let names = listed.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// Those that servers have finished.
fn written(folder: &str) -> Vec<String> {
    files(folder).into_iter().filter(|name| name.ends_with(".server")).collect()
}

#[test]
fn clients_wait_for_the_servers_of_their_job_which_end_with_them() {
    let folder = Folder::create();
    let meeting = folder.path("servers");
    let list = format!("@{meeting}:wait:by-rank");
    // All are started at once, the clients first.
    let ranks: Vec<_> = (0..4)
        .map(|rank: u32| {
            let program = Program::new("devices").env("PMI_RANK", &rank.to_string());
            program.start_through_list(&list)
        })
        .collect();
    let mut servers = [
        server(&meeting, &["--rendezvous-servers", "2"]),
        server(&meeting, &["--rendezvous-servers", "2"]),
    ];
    for (rank, run) in ranks.into_iter().enumerate() {
        let outcome = run.finish();
        outcome.expect_success("devices");
        assert!(outcome.stdout.starts_with("1 devices"), "{rank}: {outcome:?}");
    }
    for server in &mut servers {
        server.expect_logged("kind\":\"Session");
        let ended = server.ended(SOON);
        assert!(ended.is_some_and(|status| status.success()), "{ended:?} {}", server.log());
        server.expect_logged("the last client has gone");
    }
    assert_eq!(files(&meeting), [""; 0]);
    let late = command().args(["devices", "--server", &format!("@{meeting}:wait=0")]).output();
    let said = String::from_utf8_lossy(&late.expect("it runs").stderr).replace('\n', " ");
    assert!(said.contains("no server has written itself"), "{said}");
}

#[test]
fn only_the_file_has_the_token() {
    let folder = Folder::create();
    let meeting = folder.path("servers");
    let server = server(&meeting, &[]);
    let address = server.address().to_owned();
    assert!(within(PATIENCE, || !written(&meeting).is_empty()), "{}", server.log());
    let run = command()
        .args(["run", "--server", &format!("@{meeting}:wait"), "env"])
        .output()
        .expect("it runs");
    let variables = String::from_utf8_lossy(&run.stdout);
    assert!(variables.contains(&format!("OUTBOARD_SERVER=@{meeting}\n")), "{run:?}");
    assert!(!variables.contains("obt_") && !server.log().contains("obt_"), "{variables}");
    // Who has not read it is nobody.
    let stranger = Program::new("devices").env("OUTBOARD_LOG", "1").through_list(&address);
    assert!(stranger.stderr.contains("OB0401"), "{stranger:?}");
    // Another token and another certificate are for another server.
    let second = folder.path("others");
    let other = self::server(&second, &[]);
    assert!(within(PATIENCE, || !written(&second).is_empty()), "{}", other.log());
    let read = |folder: &str| {
        let file = written(folder).pop().expect("there is one");
        fs::read_to_string(format!("{folder}/{file}")).expect("it can be read")
    };
    assert!(read(&meeting).contains(&address) && read(&meeting).starts_with("outboard://obt_"));
    let swapped = read(&second).replace(other.address(), &address);
    let file = folder.write("swapped", &swapped);
    folder.allow("swapped", 0o600);
    let wrong = command().args(["devices", "--server", &format!("@{file}")]).output();
    let said = String::from_utf8_lossy(&wrong.expect("it runs").stderr).into_owned();
    assert!(said.contains("OB0403"), "{said}");
}

#[test]
fn a_server_without_clients_ends_and_so_does_one_that_is_told_to() {
    let folder = Folder::create();
    let mut unused = server(&folder.path("a"), &["--once-within", "1"]);
    assert!(unused.ended(SOON).is_some_and(|status| status.success()), "{}", unused.log());
    unused.expect_logged("no client has come");
    let mut told = server(&folder.path("b"), &[]);
    assert!(within(PATIENCE, || written(&folder.path("b")).len() == 1), "{}", told.log());
    assert!(told.terminate().is_some_and(|status| status.success()), "{}", told.log());
    assert_eq!(files(&folder.path("b")), [""; 0]);
    // The folder is no place for a server of somebody else.
    fs::create_dir(folder.path("c")).expect("it is new");
    folder.allow("c", 0o777);
    let refused = Server::start_unless_refused(
        &["--driver", "cpu", "--rendezvous", &folder.path("c")],
        "OB0704",
    );
    assert!(refused.is_none());
}

#[test]
fn a_server_ends_with_the_process_that_has_started_it() {
    let folder = Folder::create();
    let meeting = folder.path("servers");
    let outboard = dist().join("bin/outboard");
    // The shell goes on to the end of its input, and leaves its job behind.
    let line = format!(
        "OUTBOARD_CONFIG=none '{}' serve --driver cpu --warm 0 --once --rendezvous '{meeting}' \
         --listen 127.0.0.1:0 2>/dev/null & echo $!; read end",
        outboard.display()
    );
    let mut shell = Command::new("sh")
        .args(["-c", &line])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("there is a shell");
    let found = within(PATIENCE, || fs::read_dir(&meeting).is_ok_and(|found| found.count() == 1));
    assert!(found, "the server has written itself");
    let server = outboard_e2e::processes_below(shell.id());
    drop(shell.stdin.take());
    shell.wait().expect("the shell ends");
    assert!(within(SOON, || !server.iter().any(|process| is_alive(*process))), "{server:?}");
    assert_eq!((server.len(), files(&meeting).len()), (1, 0));
}
