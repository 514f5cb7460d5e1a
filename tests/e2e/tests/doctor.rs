//! `outboard doctor`: troubles are made, and it has to find each.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use outboard_e2e::{Driver, Folder, Program, Server, command, dist, programs, within};
use outboard_test_support::skip;
use outboard_wire::handshake::{Refusal, RefusalCode, VERSION};
use rustix::process::{Resource, Rlimit, setrlimit};
use serde_json::Value;

/// What the doctor has found.
struct Report {
    code: Option<i32>,
    findings: Vec<Value>,
    text: String,
}

impl Report {
    /// The findings of a check.
    fn of(&self, check: &str) -> Vec<&Value> {
        self.findings.iter().filter(|finding| finding["check"] == check).collect()
    }

    /// The one finding of a check at a level.
    fn expect(&self, check: &str, level: &str) -> &Value {
        let found = self.of(check);
        let found = found.iter().find(|finding| finding["level"] == level);
        found.unwrap_or_else(|| panic!("no finding of {check} is {level} in {}", self.text))
    }
}

fn doctor(args: &[&str], prepare: impl FnOnce(&mut Command)) -> Report {
    let mut command = command();
    command.args(["doctor", "--json"]).args(args);
    prepare(&mut command);
    let output = command.output().expect("outboard starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {text}"));
    Report {
        code: output.status.code(),
        findings: report["findings"].as_array().cloned().unwrap_or_default(),
        text,
    }
}

#[test]
fn a_healthy_client_is_told_what_to_expect() {
    let server = Server::start();
    let report = doctor(&["--server", server.address()], |_| {});
    assert_eq!(report.code, Some(0), "{}", report.text);
    for check in ["libraries", "loader", "name", "server", "session", "shared memory"] {
        report.expect(check, "ok");
    }
    // How fast this machine is just now is not what is tested.
    let (latency, bandwidth) = (report.of("latency")[0], report.of("bandwidth")[0]);
    assert!(
        latency["found"].as_str().is_some_and(|found| found.contains("the network alone")),
        "{latency}"
    );
    assert!(
        bandwidth["mend"].as_str().is_some_and(|mend| mend.contains("1 GB takes")),
        "{bandwidth}"
    );
    let session = report.expect("session", "ok")["found"].as_str().unwrap_or_default();
    assert!(session.contains("over shm"), "client and server are on one machine: {session}");
}

#[test]
fn a_closed_port_an_unknown_name_and_a_stranger_are_told_apart() {
    let code = |server: &str, check: &str| {
        let report = doctor(&["--server", server], |_| {});
        assert_eq!(report.code, Some(1), "{}", report.text);
        report.expect(check, "fail")["code"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(code("127.0.0.1:1", "server"), "OB0101");
    assert_eq!(code("no-such-host.invalid", "name"), "OB0111");
    assert_eq!(code("unix:/nonexistent/9470.sock", "server"), "OB0104");
    let refuses = |bytes: Vec<u8>| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("its address").to_string();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = std::io::Read::read(&mut stream, &mut [0; 4096]);
                let _ = std::io::Write::write_all(&mut stream, &bytes);
            }
        });
        address
    };
    assert_eq!(code(&refuses(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()), "server"), "OB0106");
    let old = Refusal { code: RefusalCode::ClientTooOld, sentence: "the client is too old".into() };
    assert_eq!(code(&refuses(old.encode(VERSION)), "server"), "OB0201");
}

/// The server itself answers the first question, and a worker the session: both connections are
/// encrypted.
#[test]
fn an_encrypted_connection_is_told_as_such() {
    let folder = Folder::create();
    let (state, admin) = (folder.path("state"), folder.path("admin.sock"));
    let token = ["token", "create", "--json", "--owner", "alice", "--state", &state];
    let token: Value =
        serde_json::from_slice(&outboard_e2e::outboard(&token).stdout).expect("a token");
    let part = |name: &str| token[name].as_str().expect("a text").to_owned();
    let driver = Driver::chosen().name();
    let server = Server::start_with(
        &[
            "--driver",
            driver,
            "--tls",
            "on",
            "--require-authentication",
            "--state",
            &state,
            "--warm",
            "1",
            "--admin",
            &admin,
        ],
        &[],
    );
    let is_warm = || {
        let listed =
            outboard_e2e::outboard(&["sessions", "--json", "--over", "0.01", "--admin", &admin]);
        serde_json::from_slice(&listed.stdout)
            .is_ok_and(|listed: Value| listed["warm_workers"] == 1)
    };
    assert!(within(Duration::from_secs(60), is_warm), "{}", server.log());
    let report = doctor(&["--server", server.address()], |command| {
        command
            .env("OUTBOARD_TLS_FINGERPRINT", part("fingerprint"))
            .env("OUTBOARD_TOKEN", part("token"));
        command.env("OUTBOARD_TRANSPORT", "tcp");
    });
    let found = |check| report.expect(check, "ok")["found"].as_str().unwrap_or_default();
    assert_eq!(found("encryption"), "the connection is encrypted with TLS 1.3");
    assert!(found("session").contains("over tcp+tls"), "{}", report.text);
}

/// Where connections are neither taken nor declined, a firewall may be at it.
#[test]
fn packets_that_vanish_are_told() {
    use rustix::net::{AddressFamily, SocketType, bind, connect, getsockname, listen, socket};
    let local: std::net::SocketAddrV4 = "127.0.0.1:0".parse().expect("an address");
    let new = || socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    let listener = new();
    bind(&listener, &local).and_then(|()| listen(&listener, 0)).expect("it can listen");
    let address = std::net::SocketAddrV4::try_from(getsockname(&listener).expect("its address"))
        .expect("of version 4");
    // Those who wait to be accepted fill it; the system drops what comes then.
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let one = new();
            rustix::io::ioctl_fionbio(&one, true).expect("it need not wait");
            let _ = connect(&one, &address);
            one
        })
        .collect();
    let report = doctor(&["--server", &address.to_string()], |_| {});
    let server = report.expect("server", "fail");
    assert_eq!(server["code"], "OB0102", "{}", report.text);
    assert!(server["mend"].as_str().is_some_and(|mend| mend.contains("firewall")), "{server}");
    drop(waiting);
}

#[test]
fn a_server_whose_driver_fails_is_told() {
    let server = Server::start_with(&["--driver", "libc.so.6"], &[]);
    let report = doctor(&["--server", server.address()], |_| {});
    assert_eq!(report.expect("server", "fail")["code"], "OB0304", "{}", report.text);
}

#[test]
fn limits_and_the_way_of_the_loader_are_looked_at() {
    let server = Server::start();
    let report = doctor(&["--server", server.address()], |command| {
        // SAFETY: between fork and exec, one system call.
        unsafe {
            command.pre_exec(|| {
                Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(40), maximum: Some(40) })?)
            });
        }
    });
    let limits = report.expect("limits", "warn");
    assert!(limits["found"].as_str().is_some_and(|found| found.contains("40 files")), "{limits}");

    // Something that the loader takes before any search path.
    let folder = Folder::create();
    let other = folder.join("libcuda.so.1");
    std::fs::copy(dist().join("lib/outboard/liboutboard-cpu.so"), &other)
        .expect("it can be copied");
    let report = doctor(&["--server", "127.0.0.1:1"], |command| {
        command.env("OUTBOARD_LIB", &*folder);
    });
    assert_eq!(report.expect("libraries", "fail")["code"], "OB0701");
    let report = doctor(&["--server", "127.0.0.1:1"], |command| {
        command.env("LD_LIBRARY_PATH", &*folder);
    });
    report.expect("loader", "ok");
    let other = report.expect("driver", "ok")["found"].as_str().unwrap_or_default();
    assert!(
        other.contains(folder.to_str().unwrap_or_default()),
        "without `outboard run` it is {other}"
    );
}

#[test]
fn memory_that_could_be_shared_and_is_not_is_told() {
    let folder = Folder::create();
    let socket = folder.join("x.sock");
    let server = Server::start_with(
        &["--driver", "cpu", "--socket", socket.to_str().expect("a plain path")],
        &[],
    );
    std::fs::rename(&socket, socket.with_extension("elsewhere")).expect("the socket is there");
    let report = doctor(&["--server", server.address()], |_| {});
    let memory = report.expect("shared memory", "warn");
    assert!(memory["mend"].as_str().is_some_and(|mend| mend.contains("container")), "{memory}");
    let report = doctor(&["--server", server.address()], |command| {
        command.env("OUTBOARD_TRANSPORT", "tcp");
    });
    assert!(
        report.expect("shared memory", "warn")["found"]
            .as_str()
            .is_some_and(|found| found.contains("asks for TCP"))
    );
}

#[test]
fn a_healthy_server_is_ok() {
    let caches = Folder::create();
    let report = doctor(&["serve", "--driver", "cpu", "--listen", "127.0.0.1:0"], |command| {
        command.env("XDG_CACHE_HOME", &*caches).env("XDG_RUNTIME_DIR", &*caches);
    });
    assert_eq!(report.code, Some(0), "{}", report.text);
    for check in ["driver", "devices", "port", "socket", "image cache", "network"] {
        assert!(!report.of(check).is_empty(), "{check} is looked at: {}", report.text);
    }
    assert!(
        report.expect("driver", "ok")["found"]
            .as_str()
            .is_some_and(|found| found.contains("liboutboard-cpu.so"))
    );
    let sandbox = report.of("sandbox")[0]["found"].as_str().unwrap_or_default().to_owned();
    assert!(
        sandbox.contains("Landlock")
            && sandbox.contains("seccomp")
            && sandbox.contains("namespaces"),
        "{sandbox}"
    );
}

#[test]
fn each_trouble_of_a_server_is_told() {
    let code = |args: &[&str], check: &str, level: &str| {
        let report = doctor(&[&["serve"], args].concat(), |_| {});
        assert_eq!(report.code, Some(i32::from(level == "fail")), "{}", report.text);
        report.expect(check, level)["code"].as_str().unwrap_or_default().to_owned()
    };
    let cpu =
        ["--driver", "cpu", "--image-cache", "off", "--socket", "none", "--listen", "127.0.0.1:0"];
    let with = |others: &[&'static str]| -> Vec<&'static str> {
        cpu.chunks(2)
            .filter(|pair| pair[0] != others[0])
            .flatten()
            .copied()
            .chain(others.iter().copied())
            .collect()
    };
    assert_eq!(code(&with(&["--driver", "/nonexistent/libcuda.so.1"]), "driver", "fail"), "OB0304");
    // A library of the system that is no driver.
    let no_driver = with(&["--driver", "libc.so.6"]);
    assert_eq!(code(&no_driver, "driver", "fail"), "OB0304");
    assert_eq!(code(&with(&["--image-cache", "/proc/outboard"]), "image cache", "warn"), "OB0306");
    assert_eq!(code(&with(&["--socket", "/proc/x.sock"]), "socket", "fail"), "OB0302");
    assert_eq!(code(&with(&["--listen", "192.0.2.1:9470"]), "port", "fail"), "OB0302");
    // Somebody who says nothing has the port.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address").to_string();
    std::thread::spawn(move || listener.incoming().flatten().for_each(drop));
    let report = doctor(
        &[
            "serve",
            "--driver",
            "cpu",
            "--image-cache",
            "off",
            "--socket",
            "none",
            "--listen",
            &address,
        ],
        |_| {},
    );
    assert_eq!(report.expect("port", "fail")["code"], "OB0302");
    // A server of ours that is there already is no trouble.
    let server = Server::start();
    let report = doctor(
        &["serve", "--driver", "cpu", "--socket", "none", "--listen", server.address()],
        |_| {},
    );
    assert!(
        report.expect("port", "ok")["found"]
            .as_str()
            .is_some_and(|found| found.contains("already")),
        "{}",
        report.text
    );
}

#[test]
fn a_folder_of_images_that_cannot_be_written_is_told() {
    let folder = Folder::create();
    folder.allow("", 0o500);
    let path = folder.to_str().expect("a plain path");
    let report = doctor(
        &[
            "serve",
            "--driver",
            "cpu",
            "--socket",
            "none",
            "--listen",
            "127.0.0.1:0",
            "--image-cache",
            path,
        ],
        |_| {},
    );
    // Root may write there all the same, and then that is what has to be found.
    let wanted = if rustix::process::geteuid().is_root() { "ok" } else { "warn" };
    report.expect("image cache", wanted);
}

#[test]
fn a_door_that_is_open_to_all_and_a_certificate_that_has_expired_are_told() {
    let folder = Folder::create();
    let text = |name: &str| folder.path(name);
    let others = ["serve", "--driver", "cpu", "--image-cache", "off", "--socket", "none"];
    let state = text("state");
    let report =
        doctor(&[&others[..], &["--listen", "0.0.0.0:0", "--state", &state]].concat(), |_| {});
    assert_eq!(report.expect("access", "fail")["code"], "OB0407", "{}", report.text);
    let report = doctor(
        &[&others[..], &["--listen", "0.0.0.0:0", "--allow-anonymous", "--state", &state]].concat(),
        |_| {},
    );
    report.expect("access", "warn");
    let key = rcgen::KeyPair::generate().expect("a key can be made");
    folder.write("key.pem", &key.serialize_pem());
    let certificate = |year: i32| {
        let mut params = rcgen::CertificateParams::new(["gpu1".to_owned()]).expect("a name");
        (params.not_before, params.not_after) =
            (rcgen::date_time_ymd(2020, 1, 1), rcgen::date_time_ymd(year, 1, 1));
        std::fs::write(
            text("server.pem"),
            params.self_signed(&key).expect("it can be signed").pem(),
        )
        .expect("it can be written");
        let (certificate, key) = (text("server.pem"), text("key.pem"));
        let files = [
            "--listen",
            "127.0.0.1:0",
            "--tls-cert",
            &certificate,
            "--tls-key",
            &key,
            "--state",
            &state,
        ];
        doctor(&[&others[..], &files].concat(), |_| {})
    };
    let report = certificate(2021);
    assert!(
        report.expect("certificate", "fail")["found"]
            .as_str()
            .is_some_and(|found| found.contains("expired")),
        "{}",
        report.text
    );
    certificate(4000).expect("certificate", "ok");
}

#[test]
fn people_get_a_table() {
    let output = command().args(["doctor", "--server", "127.0.0.1:1"]).output();
    let text = String::from_utf8_lossy(&output.expect("outboard starts").stdout).into_owned();
    assert!(
        text.contains("FAIL  server")
            && text.contains("[OB0101]")
            && text.contains("→ start a server"),
        "{text}"
    );
}

/// Without a GPU, and without a word about which driver to use, a server says loudly what it
/// serves.
#[test]
fn a_server_without_a_gpu_says_what_it_serves() {
    if Driver::chosen() != Driver::Cpu {
        skip!("it is about the software device");
    }
    let Some(server) = Server::start_unless_refused(&[], "OB0301") else {
        skip!("this machine has a GPU that cannot be used");
    };
    let log = server.log();
    let level = |message: &str| {
        log.lines().find(|line| line.contains(message)).is_some_and(|line| line.contains("WARN"))
    };
    assert!(level("the software device is served") || log.contains("NVIDIA's driver"), "{log}");
    assert!(
        log.contains("\"driver\":\"software device\"")
            || log.contains("\"driver\":\"NVIDIA's driver\""),
        "{log}"
    );
}

/// What the doctor says of a program behind `outboard run`.
fn of_program(program: &str) -> Report {
    doctor(&["--server", "127.0.0.1:1", "--", program], |_| {})
}

/// A copy of a test program, changed.
fn changed(folder: &Folder, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut bytes = std::fs::read(programs().join("vector_add")).expect("it is built");
    change(&mut bytes);
    let file = folder.path(name);
    std::fs::write(&file, bytes).expect("it can be written");
    folder.allow(name, 0o755);
    file
}

fn replace(bytes: &mut [u8], from: &[u8], to: &[u8]) {
    let at = bytes.windows(from.len()).position(|window| window == from).expect("it is there");
    bytes[at..at + to.len()].copy_from_slice(to);
}

#[test]
fn it_is_told_whether_a_program_would_load_the_library() {
    let report = of_program(&programs().join("vector_add").display().to_string());
    let found = report.expect("driver library", "ok")["found"].as_str().unwrap_or_default();
    assert!(found.contains("gets Outboard's") && report.code == Some(0), "{}", report.text);
    report.expect("CUDA runtime", "ok");
    // It is what the loader does.
    let server = Server::start();
    Program::new("vector_add").through(&server).expect_success("vector_add");

    let folder = Folder::create();
    let script =
        folder.write("script", &format!("#!{}\n", programs().join("vector_add").display()));
    of_program(&script).expect("driver library", "ok");
    assert_eq!(of_program("no-such-program").expect("program", "fail")["code"], "OB0702");

    let foreign = changed(&folder, "foreign", |bytes| bytes[18] = 0x08);
    assert_eq!(of_program(&foreign).expect("program", "fail")["code"], "OB0702");
    let wants = |program: &str, words: &str| {
        let report = of_program(program);
        let found = report.expect("driver library", "fail")["found"].as_str().unwrap_or_default();
        assert!(found.contains(words) && report.code == Some(1), "{words}: {}", report.text);
    };
    let interpreter: &[u8] = if cfg!(target_arch = "aarch64") {
        b"/lib/ld-linux-aarch64"
    } else {
        b"/lib64/ld-linux-x86-64"
    };
    let musl =
        changed(&folder, "musl", |bytes| replace(bytes, interpreter, b"/lib/ld-musl.so.1\0"));
    wants(&musl, "built for musl");
    // Only others' rights are rights of its own.
    let secure = changed(&folder, "secure", |_| ());
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&secure, Some(65534), None).expect("root may");
        std::fs::set_permissions(&secure, std::fs::Permissions::from_mode(0o4755))
            .expect("root may");
        wants(&secure, "set-user-ID");
    } else {
        skip!("only root can make a program that runs as another user: all but that");
    }
}

/// The loader looks into an RPATH first, and into a RUNPATH last.
#[test]
fn a_program_that_brings_a_library_of_its_own_is_told() {
    let folder = Folder::create();
    let source = folder.join("program.c");
    std::fs::write(
        &source,
        "#include <dlfcn.h>\nint main(void) { return !dlopen(\"libcuda.so.1\", RTLD_NOW); }\n",
    )
    .expect("it can be written");
    std::fs::copy(dist().join("lib/outboard/liboutboard-cpu.so"), folder.join("libcuda.so.1"))
        .expect("a copy");
    let built = |name: &str, flags: &[&str]| {
        let program = folder.join(name);
        let status = Command::new("cc")
            .arg(&source)
            .arg("-o")
            .arg(&program)
            .args(flags)
            .arg("-ldl")
            .status();
        assert!(status.is_ok_and(|status| status.success()), "a C compiler is needed");
        program.display().to_string()
    };
    let rpath = of_program(&built("rpath", &["-Wl,--disable-new-dtags,-rpath,$ORIGIN"]));
    let found = rpath.expect("driver library", "fail")["found"].as_str().unwrap_or_default();
    assert!(found.contains("not Outboard's") && found.contains(&folder.path("")), "{found}");
    of_program(&built("runpath", &["-Wl,--enable-new-dtags,-rpath,$ORIGIN"]))
        .expect("driver library", "ok");
    let linked = folder.join("libcuda.so.1").display().to_string();
    of_program(&built("linked", &[&linked, "-Wl,--no-as-needed"])).expect("driver library", "ok");
    let alone = built("static", &["-static"]);
    let found = of_program(&alone).expect("driver library", "fail")["found"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(found.contains("linked statically"), "{found}");
}
