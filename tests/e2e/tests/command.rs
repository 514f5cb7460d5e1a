//! The command line: what `outboard run` and `outboard devices` say, and how a server starts and
//! stops.

use outboard_e2e::{Folder, Lines, Server, command, dist, one_line, outboard, programs};
use outboard_wire::handshake::{Extensions, Refusal, RefusalCode, VERSION, Version, Welcome};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;

/// Runs a program on `server` and returns why that did not work.
fn complaint(server: &str) -> String {
    let output = outboard(&["run", "--server", server, "--", "true"]);
    assert!(!output.status.success(), "{server} should not work");
    assert!(output.stdout.is_empty(), "complaints go to standard error");
    one_line(&output.stderr)
}

/// Something that listens and answers the first bytes it gets with `answer`, once. Returns its
/// address.
fn answers(answer: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address").to_string();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut hello = [0; 4096];
        let _ = stream.read(&mut hello);
        let _ = stream.write_all(&answer);
        // The client closes first, so that its unread bytes don't turn the end into a reset.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    });
    address
}

fn refusal(code: RefusalCode, sentence: &str) -> String {
    complaint(&answers(Refusal { code, sentence: sentence.to_owned() }.encode(VERSION)))
}

#[test]
fn nothing_listens() {
    let text = complaint("127.0.0.1:1");
    assert!(
        text.contains("nothing listens at 127.0.0.1:1") && text.contains("outboard serve"),
        "{text}"
    );
    assert!(
        text.contains("OB0101") && text.contains("`outboard explain OB0101` says more"),
        "{text}"
    );
    let text = complaint("no-such-host.invalid");
    assert!(text.contains("OB0111") && text.contains("no-such-host.invalid"), "{text}");
}

#[test]
fn a_transport_that_cannot_be_had_is_explained() {
    let run = |server: &str, transport: &str| {
        let mut command = command();
        let output = command
            .args(["run", "--server", server, "--", "true"])
            .env("OUTBOARD_TRANSPORT", transport)
            .output()
            .expect("outboard starts");
        (output.status.success(), one_line(&output.stderr))
    };
    let server = Server::start_with(&["--driver", "cpu", "--socket", "none"], &[]);
    let (worked, text) = run(server.address(), "shm");
    assert!(!worked && text.contains("asks for shm, but the server has no Unix socket"), "{text}");
    assert!(text.contains("OB0108"), "{text}");
    let folder = Folder::create();
    let path = folder.path("x.sock");
    let server = Server::start_with(&["--driver", "cpu", "--socket", &path], &[]);
    let by_path = format!("unix:{path}");
    assert!(run(server.address(), "shm").0 && run(&by_path, "shm").0);
    let (worked, text) = run(&by_path, "tcp");
    assert!(!worked && text.contains("asks for tcp"), "{text}");
    drop(server);
    let (worked, text) = run(&by_path, "shm");
    assert!(!worked && text.contains("there is no socket") && text.contains("OB0104"), "{text}");
}

#[test]
fn something_else_listens() {
    let text =
        complaint(&answers(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n".to_vec()));
    assert!(
        text.contains("does not speak Outboard's protocol") && text.contains("check the port"),
        "{text}"
    );
    assert!(text.contains("OB0106"), "{text}");
}

#[test]
fn versions_that_do_not_fit_say_which_is_too_old() {
    let welcome = |major| {
        let version = Version { major, minor: 0 };
        Welcome {
            version,
            software: "other".into(),
            session: 1,
            key: 2,
            lanes: 1,
            snapshot: Vec::new(),
            local: None,
            more: Extensions::default(),
        }
        .encode()
    };
    let text = complaint(&answers(welcome(VERSION.major + 1)));
    assert!(text.contains("the client is too old") && text.contains("OB0201"), "{text}");
    let text = complaint(&answers(welcome(VERSION.major - 1)));
    assert!(text.contains("the server is too old") && text.contains("OB0202"), "{text}");
}

#[test]
fn a_refusal_is_told_with_what_to_do() {
    let text = refusal(RefusalCode::NoDevice, "this server has no device");
    assert!(text.contains("this server has no device") && text.contains("--driver cpu"), "{text}");
    assert!(text.contains("OB0205"), "{text}");
    let text = refusal(RefusalCode::Busy, "all sessions are taken");
    assert!(text.contains("all sessions are taken") && text.contains("later"), "{text}");
    assert!(text.contains("OB0206"), "{text}");
}

#[test]
fn a_server_without_a_usable_driver_says_so() {
    let folder = Folder::create();
    let library = folder.write("libcuda.so.1", "no library");
    let server = Server::start_with(&["--driver", &library], &[]);
    let text = complaint(server.address());
    assert!(text.contains(&library) && text.contains("OB0304"), "{text}");
}

#[test]
fn a_driver_that_is_not_there_is_no_server() {
    let absent = "/nonexistent/libcuda.so.1";
    let output = outboard(&["serve", "--listen", "127.0.0.1:0", "--driver", absent]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(absent) && text.contains("OB0304"), "{text}");
}

#[test]
fn whose_session_is_ended_is_told_once() {
    let folder = Folder::create();
    let admin = folder.path("admin");
    let server = Server::start_with(&["--driver", "cpu", "--admin", &admin], &[]);
    let mut child = command()
        .args(["run", "--server", server.address(), "--"])
        .arg(programs().join("endless"))
        .arg("4")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("outboard starts");
    Lines::of(child.stdout.take()).find("running");
    assert!(outboard(&["kill", "--admin", &admin, "--all"]).status.success());
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(text.matches("ended by the server's administrator").count(), 1, "{text}");
}

#[test]
fn a_servers_token_has_no_role() {
    let folder = Folder::create();
    let state = folder.path("state");
    let create = ["token", "--state", &state, "create", "--owner", "x", "--role", "server"];
    let output = outboard(&create);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("add --broker"), "{text}");
    assert!(!std::path::Path::new(&state).join("tokens.json").exists(), "a token was made");
}

#[test]
fn a_device_that_is_not_there() {
    let server = Server::start();
    let text = complaint(&format!("{}/99", server.address()));
    assert!(
        text.contains("has no device 99")
            && text.contains("OB0205")
            && text.contains("`outboard devices`"),
        "{text}"
    );
    for list in ["gpu1/0,gpu2,gpu1/0", "gpu1/x", "gpu1/0,gpu1/0", ""] {
        let output = outboard(&["run", "--server", list, "--", "true"]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && text.contains("OB0706"), "{list:?}: {text}");
    }
}

#[test]
fn run_becomes_the_program() {
    let server = Server::start();
    let output = outboard(&[
        "run",
        "--server",
        server.address(),
        "--",
        "sh",
        "-c",
        "echo \"$1\"; exit 7",
        "sh",
        "--x y",
    ]);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(7), b"--x y\n".as_slice()));
    assert!(output.stderr.is_empty(), "nothing of our own is printed");

    let output = outboard(&["run", "--server", server.address(), "--", "/nonexistent/program"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && text.contains("cannot start /nonexistent/program"),
        "{text}"
    );
    assert!(text.contains("OB0702"), "{text}");
}

#[test]
fn the_software_device_needs_no_server() {
    let program = programs().join("vector_add");
    let output = outboard(&["run", "--local-cpu", "--", program.to_str().expect("a plain path")]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        output.stdout.starts_with(b"vector_add: "),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}

#[test]
fn devices_are_listed_for_people_and_programs() {
    let server = Server::start_with(&["--driver", "cpu"], &[("OUTBOARD_CPU_DEVICES", "2")]);
    let output = outboard(&["devices", "--server", server.address()]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success()
            && text.contains("/0  ")
            && text.contains("/1  ")
            && text.contains("GPU-"),
        "{text}"
    );
    let short = outboard(&["ls", "--server", server.address()]);
    let line = text.lines().next().unwrap_or_default();
    assert!(short.stdout.starts_with(line.as_bytes()), "`ls` is the same command: {short:?}");
    let output = outboard(&["devices", "--json", "--server", server.address()]);
    let listing: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(listing["devices"].as_array().map(Vec::len), Some(2), "{listing}");
    assert_eq!(listing["transport"], "tcp");
}

#[test]
fn an_address_in_use_is_told() {
    let server = Server::start();
    let output = outboard(&["serve", "--driver", "cpu", "--listen", server.address()]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && text.contains("cannot listen") && text.contains("OB0302"),
        "{text}"
    );
}

#[test]
fn sigterm_stops_an_idle_server_cleanly() {
    let mut server = Server::start();
    let status = server.terminate();
    assert_eq!(status.and_then(|status| status.code()), Some(0), "{}", server.log());
    let text = complaint(server.address());
    assert!(text.contains("nothing listens"), "{text}");
}

#[test]
fn what_a_kernel_says_reaches_the_program_it_belongs_to() {
    let server = Server::start();
    let outcome = outboard_e2e::Program::new("fault_assert").through(&server);
    outcome.expect_success("fault_assert");
    let message =
        outcome.stderr.lines().find(|line| line.contains("Assertion")).unwrap_or_default();
    assert!(
        message.contains("fault_assert.cu") && message.contains("thread: [31,0,0]"),
        "{:?}",
        outcome.stderr
    );
}

#[test]
fn stats_say_what_a_program_waited_for() {
    let server = Server::start();
    let program = programs().join("saxpy");
    let program = program.to_str().expect("a plain path");
    // Twice from one shell: the profiles of all processes count.
    let script = format!("{program} && {program}; exit 3");
    let output =
        outboard(&["run", "--stats", "--server", server.address(), "--", "sh", "-c", &script]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "the program's status is kept: {text}");
    assert_eq!(text.matches("saxpy (process ").count(), 2, "{text}");
    let row = |name: &str| -> Vec<String> {
        let row = text
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_else(|| panic!("no {name} in {text}"));
        row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
    };
    // calls, local, posted, waited
    let launches = row("cuLaunchKernel");
    assert!(launches[1] == launches[3] && launches[4] == "0", "launches are posted: {launches:?}");
    let copies = row("cuMemcpyDtoH");
    assert_eq!(copies[1], copies[4], "copies to the host are waited for: {copies:?}");
    let attributes = row("cuDeviceGetAttribute");
    assert_eq!(attributes[1], attributes[2], "attributes are known: {attributes:?}");
    assert!(
        text.contains("% of the waiting was cu") && text.contains("The shortest of "),
        "{text}"
    );
}

#[test]
fn stats_of_a_program_that_a_signal_ends() {
    let server = Server::start();
    let output =
        outboard(&["run", "--stats", "--server", server.address(), "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(output.status.code(), Some(128 + 9));
    assert!(String::from_utf8_lossy(&output.stderr).contains("No process used the device"));
    // A signal for this process alone reaches the program.
    let mut child = command()
        .args([
            "run",
            "--stats",
            "--server",
            server.address(),
            "--",
            "sh",
            "-c",
            "trap 'exit 5' TERM; echo up; while :; do sleep 0.05; done",
        ])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("outboard starts");
    let mut up = [0; 3];
    child
        .stdout
        .take()
        .expect("standard output is piped")
        .read_exact(&mut up)
        .expect("the program says that it is up");
    let id = rustix::process::Pid::from_raw(child.id() as i32).expect("a process has a number");
    rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("it is there");
    assert_eq!(child.wait().expect("it ends").code(), Some(5));
}

/// Who copies a path from a sentence, or reads it from a pipe, gets all of it.
#[test]
fn no_path_is_broken_in_two() {
    let path = format!("/nowhere/{}/a file.toml", "with-a-long-name/".repeat(12));
    let said = outboard(&["config", "check", &path]);
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains(&path), "{said}");
    assert!(said.lines().any(|line| line.trim_start().starts_with("help: ")), "{said}");
}

#[test]
fn codes_are_explained() {
    let output = outboard(&["explain", "ob0101"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && text.starts_with("# OB0101: ") && text.contains("What to do"),
        "{text}"
    );
    let output = outboard(&["explain"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.lines().count() > 30 && text.contains("\nOB0703  "), "{text}");
    let output = outboard(&["explain", "OB9999"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("OB0705"), "{text}");
}

#[test]
fn a_program_that_wants_to_know_is_told_the_code() {
    let output = Command::new(programs().join("vector_add"))
        .env("LD_LIBRARY_PATH", dist().join("lib/outboard/client"))
        .env("OUTBOARD_SERVER", "127.0.0.1:1")
        .env("OUTBOARD_LOG", "1")
        .output()
        .expect("the program starts");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("[OB0101]"), "{text}");
}

#[test]
fn a_flag_that_there_is_not_is_no_program() {
    let output = outboard(&["run", "--sever", "gpu1", "--", "true"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("'--sever'") && text.contains("'--server'"), "{text}");
    let output = outboard(&["run", "--local-cpu", "sh", "-c", "echo $0 $1", "--sever", "-x"]);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "--sever -x\n",
        "what follows the program is the program's"
    );
}

#[test]
fn a_program_that_cannot_be_started_ends_as_in_a_shell() {
    let status = |program: &str| {
        let output = outboard(&["run", "--local-cpu", "--", program]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains("OB0702") && text.contains("cannot start"), "{text}");
        output.status.code()
    };
    assert_eq!(status("no-such-program"), Some(127));
    assert_eq!(status("/etc/passwd"), Some(126));
}

#[test]
fn who_is_waited_for_is_said_after_a_moment() {
    // It listens, and never says a word.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address").to_string();
    let mut waiting = command();
    let waiting = waiting
        .args(["run", "--server", &address, "--", "true"])
        .stderr(std::process::Stdio::piped());
    let mut child = waiting.spawn().expect("outboard starts");
    Lines::of(child.stderr.take()).find(&format!("waiting for {address} to answer"));
    let _ = child.kill();
    let _ = child.wait();
}

#[test]
fn a_token_that_others_can_read_is_told_of() {
    let server = Server::start();
    let folder = Folder::create();
    let file = folder.write("token", "a token");
    let configuration = folder.write("outboard.toml", "[client]\ntoken-file = \"~/token\"\n");
    let said = |mode: u32, args: &[&str]| {
        folder.allow("token", mode);
        let mut command = command();
        let command =
            command.args(args).env("HOME", &*folder).env("OUTBOARD_CONFIG", &configuration);
        let output = command.output().expect("outboard starts");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let devices = ["devices", "--server", server.address()];
    let text = said(0o644, &devices);
    assert!(
        text.contains("other users can read the token") && text.contains("chmod 600"),
        "{text}"
    );
    assert!(!said(0o600, &devices).contains("other users"));
    assert!(said(0o600, &["config", "check"]).contains("is right"), "the home folder is found");
    std::fs::remove_file(&file).expect("it was there");
    let text = one_line(&outboard(&["config", "check", &configuration]).stderr);
    assert!(
        text.contains("`token-file` in line 2 names") && text.contains("cannot be read"),
        "{text}"
    );
    let doctor = outboard(&["doctor", "--server", server.address(), "--token-file", &file]);
    let text = String::from_utf8_lossy(&[doctor.stdout, doctor.stderr].concat()).into_owned();
    assert!(!text.contains("unexpected argument"), "{text}");
}
