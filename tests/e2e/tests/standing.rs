//! Servers that stop, are killed and start again, while programs run.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outboard_e2e::{
    Driver, Folder, PATIENCE, Program, Running, Server, command, dist, is_alive, one_line,
    outboard, within,
};

/// A file that a program waits for.
struct Sign(Folder);

impl Sign {
    fn new() -> Sign {
        Sign(Folder::create())
    }

    fn path(&self) -> String {
        self.0.path("sign")
    }

    fn give(&self) {
        self.0.write("sign", "");
    }
}

fn steady(server: &Server, end: &Sign) -> Running {
    let mut program = Program::new("steady").arg(&end.path()).start_through(server);
    program.wait_for_line("running");
    program
}

fn end_well(program: Running, end: &Sign, what: &str) {
    end.give();
    let outcome = program.finish();
    outcome.expect_success(what);
    assert!(outcome.stdout.contains("rounds"), "{what}: {}", outcome.stdout);
}

fn survives(name: &str, server: &mut Server, start: impl Fn(&Server, &Sign) -> Running) {
    let end = Sign::new();
    let mut program = start(server, &end);
    let worker = server.only_worker();
    for _ in 0..2 {
        server.kill();
        assert!(!program.has_ended() && is_alive(worker), "the program went on without its server");
        server.start_again();
        Program::new("vector_add").through(server).expect_success("a new program");
        assert!(
            !program.has_ended() && is_alive(worker),
            "the program went on with its next server"
        );
    }
    end_well(program, &end, name);
    assert!(
        within(PATIENCE, || !is_alive(worker) && server.records().is_empty()),
        "nothing is left"
    );
}

#[test]
fn a_program_goes_on_when_its_server_is_killed_and_starts_again() {
    survives("killed", &mut Server::start(), steady);
}

#[test]
fn so_does_one_that_shares_memory_with_its_worker() {
    survives("killed-shm", &mut Server::start(), |server, end| {
        let mut program =
            Program::new("steady").arg(&end.path()).sharing_memory().start_through(server);
        program.wait_for_line("running");
        program
    });
}

#[test]
fn so_does_one_whose_worker_is_confined() {
    let mut server =
        Server::start_with(&["--driver", Driver::chosen().name(), "--sandbox", "on"], &[]);
    survives("killed-confined", &mut server, steady);
}

#[test]
fn lanes_are_opened_with_the_next_server() {
    let mut server = Server::start();
    let (end, begin) = (Sign::new(), Sign::new());
    let mut program =
        Program::new("steady").arg(&end.path()).arg(&begin.path()).start_through(&server);
    program.wait_for_line("waiting");
    server.kill();
    server.start_again();
    begin.give();
    program.wait_for_line("running");
    end_well(program, &end, "the program");
}

#[test]
fn a_stopping_server_lets_a_program_finish_and_says_why_it_takes_no_other() {
    let mut server =
        Server::start_with(&["--driver", Driver::chosen().name(), "--drain", "600"], &[]);
    let end = Sign::new();
    let mut program = steady(&server, &end);
    server.ask_to_stop();
    let refused = || {
        let outcome = Program::new("vector_add").through(&server);
        outcome.stderr.contains("the server is stopping and takes no new sessions")
    };
    assert!(within(PATIENCE, refused), "{}", server.log());
    assert!(!program.has_ended(), "the program went on");
    server.expect_logged("waiting for sessions to end");
    end_well(program, &end, "the program");
    let status = server.ended(Duration::from_secs(60));
    assert_eq!(status.and_then(|status| status.code()), Some(0), "{}", server.log());
}

#[test]
fn no_program_fails_while_its_server_is_upgraded() {
    const UPGRADES: u64 = 5;
    let server = Server::start_with(&["--driver", Driver::chosen().name(), "--warm", "1"], &[]);
    let end = Sign::new();
    let program = steady(&server, &end);
    let done = AtomicBool::new(false);
    let ran = std::thread::scope(|scope| {
        let others: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut ran = 0;
                    while !done.load(Ordering::Relaxed) {
                        Program::new("vector_add")
                            .through(&server)
                            .expect_success("a program during upgrades");
                        ran += 1;
                    }
                    ran
                })
            })
            .collect();
        for upgrade in 1..=UPGRADES {
            server.ask_to_upgrade();
            server.expect_upgrades(upgrade);
        }
        done.store(true, Ordering::Relaxed);
        others.into_iter().map(|other| other.join().expect("no program failed")).sum::<u64>()
    });
    assert!(ran > 0);
    end_well(program, &end, "the program of the first release");
    assert!(within(PATIENCE, || server.records().is_empty()), "{:?}", server.records());
}

/// What `outboard upgrade` says about a server, and whether it was upgraded.
fn upgrade(server: &Server, more: &[&str]) -> (bool, String) {
    let output = outboard(&[&["upgrade", "--server", server.address()], more].concat());
    let said = if output.status.success() { output.stdout } else { output.stderr };
    (output.status.success(), one_line(&said))
}

#[test]
fn who_looks_on_sees_the_next_release() {
    let server = Server::start();
    let mut looks = command()
        .args(["top", "--json", "--count", "4", "--interval", "0.5", "--server", server.address()])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("outboard starts");
    let mut lines = BufReader::new(looks.stdout.take().expect("standard output is piped")).lines();
    assert!(lines.next().is_some_and(|line| line.is_ok()), "a look at the server of before");
    let (upgraded, said) = upgrade(&server, &[]);
    assert!(upgraded, "{said}");
    assert_eq!(lines.map_while(Result::ok).count(), 3);
    assert!(looks.wait().is_ok_and(|status| status.success()));
}

/// An installation whose program can be replaced.
fn installation() -> Folder {
    let folder = Folder::create();
    fs::create_dir(folder.join("bin")).expect("a folder can be made");
    std::os::unix::fs::symlink(dist().join("lib"), folder.join("lib")).expect("a link can be made");
    folder
}

/// Puts a program in its place as an installation does, by a rename: a script of the shell, or if
/// there is none, the one under test.
///
/// Another process writes it. Were it this one, a child that another thread starts meanwhile could
/// have the file open for writing, and then nobody can run it.
fn install(program: &Path, script: Option<&str>) {
    let (fresh, draft) = (program.with_extension("new"), program.with_extension("draft"));
    let source = match script {
        Some(script) => {
            fs::write(&draft, format!("#!/bin/sh\n{script}\n")).expect("a script can be written");
            fs::set_permissions(&draft, std::os::unix::fs::PermissionsExt::from_mode(0o755))
                .expect("it can be run");
            draft
        }
        None => dist().join("bin/outboard"),
    };
    let copied = Command::new("cp").arg(&source).arg(&fresh).status();
    assert!(copied.is_ok_and(|status| status.success()), "the program can be copied");
    fs::rename(&fresh, program).expect("the program can be replaced");
}

#[test]
fn a_server_becomes_the_program_that_was_put_in_its_place() {
    let folder = installation();
    let outboard = folder.join("bin/outboard");
    install(&outboard, None);
    let inode = |path: &Path| {
        fs::metadata(path).map(|file| std::os::unix::fs::MetadataExt::ino(&file)).ok()
    };
    let server = Server::start_program(&outboard, &["--driver", Driver::chosen().name()], &[]);
    let runs = PathBuf::from(format!("/proc/{}/exe", server.id()));
    let first = inode(&runs);
    let end = Sign::new();
    let program = steady(&server, &end);

    // One that cannot serve is not taken.
    install(&outboard, Some("echo this is no server >&2\nexit 1"));
    server.ask_to_upgrade();
    server.expect_logged("this is no server");
    assert_eq!((server.upgrades(), inode(&runs)), (0, first));
    let (upgraded, said) = upgrade(&server, &[]);
    assert!(!upgraded && said.contains("OB0801") && said.contains("this is no server"), "{said}");
    assert_eq!((server.upgrades(), inode(&runs)), (0, first));
    Program::new("vector_add").through(&server).expect_success("a program with the old release");

    install(&outboard, None);
    let (upgraded, said) = upgrade(&server, &[]);
    assert!(
        upgraded && said.contains("what now lies at") && said.contains("The one session went on"),
        "{said}"
    );
    server.expect_upgrades(1);
    assert!(inode(&runs) == inode(&outboard) && inode(&runs) != first);
    Program::new("vector_add").through(&server).expect_success("a program with the new release");
    end_well(program, &end, "the program of the old release");
}

#[test]
fn whoever_asks_for_an_upgrade_is_told_what_became_of_it() {
    let server = Server::start();
    let (upgraded, said) = upgrade(&server, &[]);
    assert!(upgraded && said.contains("is the program that it was already"), "{said}");
    assert!(said.contains("There were no sessions"), "{said}");
    let ends = [Sign::new(), Sign::new()];
    let programs = [0, 1].map(|which: usize| steady(&server, &ends[which]));
    let (upgraded, said) = upgrade(&server, &["--json"]);
    let said: serde_json::Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
    assert!(upgraded && said["same_program"] == true && said["process"] == server.id(), "{said}");
    assert_eq!(
        (&said["sessions"], &said["went_on"], &said["unanswered"]),
        (&2.into(), &2.into(), &0.into()),
        "{said}"
    );
    server.expect_upgrades(2);
    for (program, end) in programs.into_iter().zip(&ends) {
        end_well(program, end, "a program during upgrades");
    }
}

#[test]
fn a_service_manager_asks_by_process() {
    let (server, other) = (Server::start(), Server::start());
    let asked = |process: u32| outboard(&["upgrade", "--process", &process.to_string(), "--json"]);
    let output = asked(server.id());
    let said: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert!(output.status.success() && said["process"] == server.id(), "{said}");
    server.expect_upgrades(1);
    assert_eq!(other.upgrades(), 0);
    let output = asked(std::process::id());
    assert!(
        !output.status.success() && String::from_utf8_lossy(&output.stderr).contains("OB0901"),
        "{output:?}"
    );
}

#[test]
fn a_program_that_would_look_for_sessions_elsewhere_is_not_taken() {
    let folder = installation();
    let program = folder.join("bin/outboard");
    install(&program, None);
    let server = Server::start_program(&program, &["--driver", Driver::chosen().name()], &[]);
    let real = dist().join("bin/outboard");
    for (records, place) in
        [("s#/records#/elsewhere#", "/elsewhere/"), ("s#[^ ]*/records#none#", "nowhere")]
    {
        install(
            &program,
            Some(&format!("exec {} $(echo \"$@\" | sed '{records}')", real.display())),
        );
        let (upgraded, said) = upgrade(&server, &[]);
        // Lines are broken anywhere.
        let said = said.replace(' ', "");
        assert!(
            !upgraded && said.contains("OB0801") && said.contains("theywouldbelookedfor"),
            "{said}"
        );
        assert!(said.contains(place), "{said}");
        assert_eq!(server.upgrades(), 0);
    }
    install(&program, None);
    let (upgraded, said) = upgrade(&server, &[]);
    assert!(upgraded, "{said}");
}

#[test]
fn what_a_killed_server_leaves_is_removed_by_the_next_one() {
    let folder = Folder::create();
    let env = [("XDG_RUNTIME_DIR", folder.to_str().expect("a plain path"))];
    let start = || Server::start_with(&["--driver", Driver::chosen().name()], &env);
    let sockets = || -> Vec<PathBuf> {
        let found = fs::read_dir(folder.join("outboard"))
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path());
        found.filter(|path| path.extension().is_some_and(|extension| extension == "sock")).collect()
    };
    let (mut killed, lives) = (start(), start());
    assert_eq!(sockets().len(), 4, "for clients and for administrators of each: {:?}", sockets());
    killed.kill();
    assert_eq!(sockets().len(), 4);
    let next = start();
    let port = |server: &Server| server.address().rsplit(':').next().unwrap_or_default().to_owned();
    let named = |server: &Server| {
        let port = port(server) + ".";
        sockets()
            .iter()
            .filter(|path| {
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&port))
            })
            .count()
    };
    assert_eq!((named(&killed), named(&lives), named(&next)), (0, 2, 2), "{:?}", sockets());
    drop((lives, next));
}

#[test]
fn settings_that_would_end_the_server_are_found_before_it_takes_them() {
    let folder = installation();
    let file = folder.join("outboard.toml");
    let set = |text: &str| fs::write(&file, text).expect("the file can be written");
    let driver = format!("[serve]\ndriver = \"{}\"\n", Driver::chosen().name());
    set(&driver);
    let path = file.to_str().expect("a plain path");
    let server = Server::start_with(&[], &[("OUTBOARD_CONFIG", path)]);
    let end = Sign::new();
    let program = steady(&server, &end);
    for (settings, code) in [
        ("[serve]\ngrace = \"long\"\n", "OB0703"),
        (
            "[serve]\ntls = \"on\"\ntls-cert = \"/nowhere/cert\"\ntls-key = \"/nowhere/key\"\n",
            "OB0704",
        ),
        ("[serve]\ndriver = \"/nowhere/libcuda.so\"\n", "OB0304"),
    ] {
        set(settings);
        let (upgraded, said) = upgrade(&server, &[]);
        assert!(!upgraded && said.contains("OB0801") && said.contains(code), "{settings}: {said}");
        assert_eq!(server.upgrades(), 0, "{settings}");
    }
    // What it can do without ends nobody.
    set(&(driver + "metrics = \"192.0.2.1:1\"\n"));
    let (upgraded, said) = upgrade(&server, &[]);
    assert!(upgraded && said.contains("The one session went on"), "{said}");
    server.expect_logged("OB0906");
    Program::new("vector_add").through(&server).expect_success("a new program");
    end_well(program, &end, "the program");
}

#[test]
fn a_release_that_does_not_come_up_is_told() {
    let folder = installation();
    let program = folder.join("bin/outboard");
    install(&program, None);
    let mut server = Server::start_program(&program, &["--driver", Driver::chosen().name()], &[]);
    // It says that it could serve, and cannot.
    install(&program, Some("case \"$*\" in *--check) exit 0;; esac\nexit 9"));
    let (upgraded, said) = upgrade(&server, &[]);
    assert!(!upgraded && said.contains("OB0802") && said.contains("ended soon after"), "{said}");
    assert_eq!(server.ended(PATIENCE).and_then(|status| status.code()), Some(9));
    let (upgraded, said) = upgrade(&server, &[]);
    assert!(!upgraded && said.contains("OB0901"), "{said}");
}

#[test]
fn a_server_that_stops_during_the_check_is_not_upgraded() {
    let folder = installation();
    let (program, asked) = (folder.join("bin/outboard"), folder.join("asked"));
    install(&program, None);
    let mut server = Server::start_program(&program, &["--driver", Driver::chosen().name()], &[]);
    install(&program, Some(&format!("touch {}\nexec sleep 600", asked.display())));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| upgrade(&server, &[]));
        assert!(within(PATIENCE, || asked.exists()), "the check begins");
        let (upgraded, said) = upgrade(&server, &[]);
        assert!(!upgraded && said.contains("OB0801") && said.contains("already"), "{said}");
        assert!(!first.is_finished());
        server.ask_to_stop();
        let (upgraded, said) = first.join().expect("it is answered");
        assert!(!upgraded && said.contains("it is stopping") && said.contains("OB0801"), "{said}");
    });
    assert_eq!(server.ended(PATIENCE).and_then(|status| status.code()), Some(0));
}
