//! Files that client and server both have: the server reads and writes them itself.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use outboard_e2e::files::{fill, moved};
use outboard_e2e::{Answers, Cache, Driver, Folder, Program, Server, WatchedFiles};
use outboard_files::Reference;
use outboard_test_support::skip;
use serde_json::{Value, json};

use crate::proxy::Proxy;

/// What a client's mount says of a folder.
fn source(folder: &Folder) -> String {
    let file = folder.write("probe", "");
    let reference = Reference::of(File::open(file).unwrap().as_fd()).expect("it has a name");
    let path = String::from_utf8(reference.path).unwrap();
    let path = path.strip_suffix("/probe").expect("it lies in the folder");
    format!("{}/{path}", reference.source)
}

/// As whom a server of this user may open files.
fn own_user() -> String {
    format!("{}:{}", rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())
}

/// A server that shares the files of a folder, with something behind its path.
fn sharing(folder: &Folder, more: &str) -> Server {
    sharing_as(folder, &format!("{}{more}", folder.path("")))
}

/// A server that has the files of a folder in another one, with something behind its path. Every
/// user may enter the folder.
fn sharing_as(folder: &Folder, theirs: &str) -> Server {
    folder.allow("", 0o755);
    let share = format!("{}={theirs}", source(folder));
    Server::start_with(&["--driver", Driver::chosen().name(), "--files", &share], &[])
}

#[test]
fn they_are_read_and_written_by_the_server() {
    let folder = Folder::create();
    let server = sharing(&folder, &format!(":rw:as={}", own_user()));
    let all = Program::new("cufile").arg("all").arg(&folder.path("."));
    for transport in ["tcp", "shm"] {
        let profile = all.clone().env("OUTBOARD_TRANSPORT", transport).statistics(&server);
        let (read, read_here, written, written_here) = moved(&profile);
        assert!(read > 150 << 20 && written > 60 << 20, "{transport}: {profile}");
        // Page-locked, managed and other memory of the program's is the client's to read and write.
        assert!(read_here < 64 << 20 && written_here < 64 << 20, "{transport}: {profile}");
    }
    // The client sends names, not bytes.
    let large = fill(&folder.path("file"), 32 << 20, 0);
    let one = Program::new("file_reads").arg(&folder.path("file")).arg("1");
    let profile = one.statistics(&server);
    assert_eq!(moved(&profile), (32 << 20, 0, 0, 0), "{profile}");
    assert!(profile["bytes_to_device"].as_u64().unwrap() < 100_000, "{profile}");
    let said = one.through(&server);
    assert_eq!(said.stdout, format!("1: {} bytes, sum {large}\n", 32 << 20));
}

#[test]
fn mapped_files_are_read_by_the_server_while_they_are_the_files() {
    let folder = Folder::create();
    let path = folder.path("file");
    fill(&path, 20_000_003, 1);
    let program = Program::new("file_mapping").arg(&path);
    let asked = program.clone().env("OUTBOARD_FILES", "mapped");
    let (server, nothing) =
        (sharing(&folder, ""), Server::start_with(&["--driver", Driver::chosen().name()], &[]));
    for transport in ["tcp", "shm"] {
        let profile = asked.clone().env("OUTBOARD_TRANSPORT", transport).statistics(&server);
        let (read, ..) = moved(&profile);
        // The whole file and, where the stream is done when it is asked, each of two parts.
        let parts = [0, 5_000_001, 6_000_000, 11_000_001].map(|more| 20_000_003 + more);
        assert!(parts.contains(&read), "{transport}: {profile}");
        assert_eq!(moved(&asked.statistics(&nothing)).0, 0);
        assert_eq!(moved(&program.statistics(&server)).0, 0, "nobody has asked");
    }
    // fastsafetensors reads it before it uses cuFile.
    let expected = |value| format!("mapped files are copied, GPUDirect {value}\n");
    assert_eq!(asked.through(&server).stdout, expected(1));
    assert_eq!(program.through(&server).stdout, expected(0));
}

/// What a loader copies out of the mapping first has the file's bytes as well.
#[test]
fn tensors_of_a_mapped_file_are_read_by_the_server() {
    const SIZES: [usize; 4] = [5 << 20, 1 << 20, (4 << 20) + 4, 5 << 20];
    let folder = Folder::create();
    let path = folder.path("weights");
    let mut tensors = serde_json::Map::new();
    let mut end = 0;
    for (number, size) in SIZES.iter().enumerate() {
        let place = json!({"dtype": "U8", "shape": [size], "data_offsets": [end, end + size]});
        tensors.insert(format!("tensor {number}"), place);
        end += size;
    }
    let header = serde_json::to_vec(&tensors).unwrap();
    fill(&path, end, 7);
    let content = std::fs::read(&path).unwrap();
    let length = (header.len() as u64).to_le_bytes();
    std::fs::write(&path, [&length[..], &header, &content].concat()).unwrap();
    let program = SIZES
        .iter()
        .fold(Program::new("tensors").arg(&path), |program, size| program.arg(&size.to_string()));
    let asked = program.clone().env("OUTBOARD_FILES", "mapped");
    let (server, nothing) =
        (sharing(&folder, ""), Server::start_with(&["--driver", Driver::chosen().name()], &[]));
    // Each twice; a small one and those that were changed are the client's.
    let large: usize = SIZES.iter().filter(|size| **size >= 4 << 20).sum();
    for transport in ["tcp", "shm"] {
        let profile = asked.clone().env("OUTBOARD_TRANSPORT", transport).statistics(&server);
        assert_eq!(moved(&profile).0, 2 * large as u64, "{transport}: {profile}");
    }
    assert_eq!(moved(&asked.clone().env("OUTBOARD_TRANSPORT", "tcp").statistics(&nothing)).0, 0);
    assert_eq!(moved(&program.statistics(&server)).0, 0, "nobody has asked");
}

/// Also where nothing is shared, and of a file that has no name any more.
#[test]
fn a_server_on_the_same_machine_gets_the_descriptor() {
    let folder = Folder::create();
    let server = Server::start_with(&["--driver", Driver::chosen().name()], &[]);
    let all = Program::new("cufile").arg("all").arg(&folder.path(".")).sharing_memory();
    let (read, read_here, written, written_here) = moved(&all.statistics(&server));
    assert!(read > 150 << 20 && written > 60 << 20, "{read} {written}");
    assert!(read_here < 64 << 20 && written_here < 64 << 20, "{read_here} {written_here}");
    let (path, profile) = (folder.path("file"), folder.path("profile"));
    let sum = fill(&path, 5_000_000, 1);
    let program = Program::new("file_reads").arg(&path).arg("2").sharing_memory();
    let mut running = program.env("OUTBOARD_PROFILE", &profile).start_through(&server);
    running.wait_for_line(&format!("1: 5000000 bytes, sum {sum}"));
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1000).unwrap();
    std::fs::remove_file(&path).unwrap();
    folder.write("file.2", "");
    // The device's memory is filled with zeros before each reading.
    let left: u64 = (0..1000).map(|at| u64::from((at * 7 + at / 251 + 1) as u8)).sum();
    running.wait_for_line(&format!("2: 1000 bytes, sum {left}"));
    running.finish().expect_success("by the descriptor");
    let profile: Value = serde_json::from_slice(&std::fs::read(profile).unwrap()).unwrap();
    assert_eq!(moved(&profile), (5_001_000, 0, 0, 0), "{profile}");
}

#[test]
fn a_change_is_noticed() {
    let folder = Folder::create();
    let server = sharing(&folder, "");
    let (path, profile) = (folder.path("file"), folder.path("profile"));
    let first = fill(&path, 5_000_000, 1);
    let program = Program::new("file_reads").arg(&path).arg("3").env("OUTBOARD_PROFILE", &profile);
    let mut running = program.start_through(&server);
    running.wait_for_line(&format!("1: 5000000 bytes, sum {first}"));
    // What the kernel writes down as the time of a change has a step of some milliseconds.
    std::thread::sleep(Duration::from_millis(20));
    let second = fill(&path, 5_000_000, 90);
    assert_ne!(first, second);
    folder.write("file.2", "");
    running.wait_for_line(&format!("2: 5000000 bytes, sum {second}"));
    // It is named anew then.
    folder.write("file.3", "");
    running.wait_for_line(&format!("3: 5000000 bytes, sum {second}"));
    running.finish().expect_success("after a change");
    let profile: Value = serde_json::from_slice(&std::fs::read(profile).unwrap()).unwrap();
    assert_eq!(moved(&profile), (10_000_000, 5_000_000, 0, 0), "{profile}");
}

#[test]
fn what_is_not_shared_goes_through_the_client() {
    let (folder, other) = (Folder::create(), Folder::create());
    let path = folder.path("file");
    let sum = fill(&path, 3_000_000, 5);
    let program = Program::new("file_reads").arg(&path).arg("2");
    folder.write("file.2", "");
    let says = |server: &Server, reason: &str| {
        let profile = program.statistics(server);
        assert_eq!(moved(&profile), (0, 6_000_000, 0, 0), "{reason}: {profile}");
        let reasons = profile["files"]["reasons"].as_object().expect("it says why");
        let said: Vec<&String> = reasons.keys().collect();
        assert!(said.len() == 1 && said[0].contains(reason), "{said:?}");
        let lines = format!("1: 3000000 bytes, sum {sum}\n2: 3000000 bytes, sum {sum}\n");
        assert_eq!(program.through(server).stdout, lines);
    };
    let nothing = Server::start_with(&["--driver", Driver::chosen().name()], &[]);
    says(&nothing, "the server shares no files");
    says(&sharing(&other, ""), "its administrator can name them");
    // Another file of the same name is not that one.
    let elsewhere = sharing_as(&folder, &other.path(""));
    std::fs::copy(&path, other.path("file")).unwrap();
    says(&elsewhere, "it has another inode");
    // The link leads out of the folder.
    std::fs::remove_file(other.path("file")).unwrap();
    std::os::unix::fs::symlink(&path, other.path("file")).unwrap();
    says(&elsewhere, "symbolic link");
}

#[test]
fn the_kernel_judges_as_the_owners_user() {
    if !rustix::process::getuid().is_root() {
        skip!("only root opens files as somebody else");
    }
    let folder = Folder::create();
    // The folder is anybody's to enter, the file its user's to read.
    folder.allow("", 0o711);
    let path = folder.path("file");
    fill(&path, 1_000_000, 3);
    folder.allow("file", 0o600);
    let program = Program::new("file_reads").arg(&path).arg("1");
    let profile = program.statistics(&sharing(&folder, ":as=65534:65534"));
    assert_eq!(moved(&profile), (0, 1_000_000, 0, 0), "{profile}");
    let reasons = profile["files"]["reasons"].to_string();
    assert!(reasons.contains("has no permission"), "{reasons}");
    let theirs = Some(65534);
    std::os::unix::fs::chown(Path::new(&path), theirs, theirs).unwrap();
    let profile = program.statistics(&sharing(&folder, ":as=65534:65534"));
    assert_eq!(moved(&profile), (1_000_000, 0, 0, 0), "{profile}");
}

/// The server's user, who may read more than its clients.
#[test]
fn a_private_file_needs_a_user() {
    let folder = Folder::create();
    let path = folder.path("file");
    fill(&path, 1_000_000, 3);
    folder.allow("file", 0o600);
    let program = Program::new("file_reads").arg(&path).arg("1");
    let profile = program.statistics(&sharing(&folder, ""));
    assert_eq!(moved(&profile), (0, 1_000_000, 0, 0), "{profile}");
    let reasons = profile["files"]["reasons"].to_string();
    assert!(reasons.contains("has named no user"), "{reasons}");
    let named = program.statistics(&sharing(&folder, &format!(":as={}", own_user())));
    assert_eq!(moved(&named), (1_000_000, 0, 0, 0), "{named}");
}

#[test]
fn a_table_names_owners() {
    let folder = Folder::create();
    let path = folder.path("file");
    fill(&path, 1_000_000, 3);
    let table = folder.write(
        "files.toml",
        &format!(
            "['{}']\nfolder = '{}'\nowners = ['somebody else']\n",
            source(&folder),
            folder.path("")
        ),
    );
    let flags = ["--driver", Driver::chosen().name(), "--files-from", &table];
    let profile =
        Program::new("file_reads").arg(&path).arg("1").statistics(&Server::start_with(&flags, &[]));
    assert_eq!(moved(&profile), (0, 1_000_000, 0, 0), "{profile}");
    let reasons = profile["files"]["reasons"].to_string();
    assert!(reasons.contains("with others than"), "{reasons}");
}

#[test]
fn a_program_of_outboards_own_header_runs_everywhere() {
    let folder = Folder::create();
    let program = Program::new("own_io").arg(&folder.path("."));
    let by = |server: u8, here: u8| {
        format!(
            "read by the server {server}, here {here}\nwritten by the server {server}, here {here}\n"
        )
    };
    let server = sharing(&folder, &format!(":rw:as={}", own_user()));
    let said = program.through(&server);
    said.expect_success("by the server");
    assert_eq!(said.stdout, by(1, 0));
    let nothing = Server::start_with(&["--driver", Driver::chosen().name()], &[]);
    let said = program.through(&nothing);
    said.expect_success("by the client");
    assert_eq!(said.stdout, by(0, 1));
    let said = program.arg("apart").directly();
    said.expect_success("without Outboard");
    assert_eq!(said.stdout, by(0, 0));
}

/// The answer of a read that was under way arrives over the next connection.
#[test]
fn cut_connections_change_nothing() {
    let folder = Folder::create();
    let path = folder.path("file");
    let sum = fill(&path, 24 << 20, 4);
    for time in 2..=20 {
        folder.write(&format!("file.{time}"), "");
    }
    let server = sharing(&folder, "");
    let proxy = Proxy::start(server.address());
    let program = Program::new("file_reads").arg(&path).arg("20").env("OUTBOARD_TRANSPORT", "tcp");
    let mut running = program.start_through_list(proxy.address());
    let mut cut = 0;
    for time in 1..=20 {
        running.wait_for_line(&format!("{time}: {} bytes, sum {sum}", 24 << 20));
        // The next read is about to begin.
        std::thread::sleep(Duration::from_millis(time * 3));
        cut += proxy.cut(None);
    }
    running.finish().expect_success("with cut connections");
    assert!(cut > 0, "it was over before its connections were cut");
}

#[test]
fn two_servers_read_for_their_own_devices() {
    let folder = Folder::create();
    let path = folder.path("file");
    let sum = fill(&path, 2_000_000, 9);
    let (one, two) = (sharing(&folder, ""), sharing(&folder, ""));
    let list = format!("{},{}", one.address(), two.address());
    for device in ["0", "1"] {
        let program = Program::new("file_reads").arg(&path).arg("1").arg(device);
        let said = program.through_list(&list);
        assert_eq!(said.stdout, format!("1: 2000000 bytes, sum {sum}\n"), "{device}");
        let profile = program.statistics_of_list(&list);
        assert_eq!(moved(&profile), (2_000_000, 0, 0, 0), "{device}: {profile}");
    }
}

/// The server has the files in a file system that stops answering; the client's goes on.
#[test]
fn a_silent_file_system_delays_its_own_files_only() {
    let (folder, theirs) = (Folder::create(), Folder::create());
    let path = folder.path("file");
    let sum = fill(&path, 9_000_000, 2);
    let mounted = match WatchedFiles::mount(&folder.path(""), &theirs.path(""), Cache::None) {
        Ok(mounted) => mounted,
        Err(error) => skip!("nothing can be mounted here: {error}"),
    };
    let server = sharing_as(&folder, &theirs.path(""));
    // Dropped first: who waits for an answer gets an error, and the server can end.
    let silent = mounted;
    let profile = folder.path("profile");
    let program = Program::new("file_reads").arg(&path);
    let reading = program.clone().arg("3").env("OUTBOARD_PROFILE", &profile);
    let mut running = reading.start_through(&server);
    let line = |time: u32| format!("{time}: 9000000 bytes, sum {sum}");
    running.wait_for_line(&line(1));
    silent.answer(Answers::NoReadsFrom(1));
    let begun = Instant::now();
    folder.write("file.2", "");
    // Meanwhile other sessions open files of the same file system, and get no further than that.
    silent.answer(Answers::NoReadsFrom(1 << 20));
    let other = program.clone().arg("1").start_through(&server);
    running.wait_for_line(&line(2));
    let waited = begun.elapsed();
    assert!(Duration::from_secs(9) < waited && waited < Duration::from_secs(60), "{waited:?}");
    // It is not asked again.
    let begun = Instant::now();
    folder.write("file.3", "");
    running.wait_for_line(&line(3));
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
    running.finish().expect_success("with a silent file system");
    other.finish().expect_success("beside it");
    let profile: Value = serde_json::from_slice(&std::fs::read(profile).unwrap()).unwrap();
    assert_eq!(moved(&profile), (9_000_000, 18_000_000, 0, 0), "{profile}");
    let reasons = profile["files"]["reasons"].to_string();
    assert!(reasons.contains("file system does not answer"), "{reasons}");
    // Nor does it open files: the client need not wait long.
    silent.answer(Answers::NoNames);
    let begun = Instant::now();
    let profile = program.arg("1").statistics(&server);
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert_eq!(moved(&profile), (0, 9_000_000, 0, 0), "{profile}");
    assert!(silent.held() > 2, "{}", silent.held());
}

/// What is not shared takes as long as the link needs for it.
#[test]
fn a_narrow_link_does_not_matter() {
    const BYTES: usize = 16 << 20;
    let (folder, other) = (Folder::create(), Folder::create());
    let sum = fill(&folder.path("file"), BYTES, 8);
    let took = |theirs: &Folder| {
        let share = format!("{}={}", source(&folder), theirs.path(""));
        let driver = Driver::chosen().name();
        let flags = ["--driver", driver, "--files", &share, "--session-bandwidth", "2M"];
        let program = Program::new("file_reads").arg(&folder.path("file")).arg("1");
        let said = program.through(&Server::start_with(&flags, &[]));
        assert_eq!(said.stdout, format!("1: {BYTES} bytes, sum {sum}\n"), "{}", said.stderr);
        let seconds = said.stderr.lines().find_map(|line| line.strip_suffix(" seconds"));
        seconds.and_then(|seconds| seconds.parse::<f64>().ok()).expect("it says how long")
    };
    let (shared, apart) = (took(&folder), took(&other));
    assert!(apart > 6.0 && shared < 2.0, "{shared} and {apart} seconds");
}

#[test]
fn ten_thousand_files_are_open_at_once() {
    const COUNT: usize = 10_000;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    if limit.maximum.is_some_and(|most| most < COUNT as u64 + 1000) {
        skip!("a process may open {:?} files here", limit.maximum);
    }
    let folder = Folder::create();
    let (mut bytes, mut sum) = (0, 0);
    for number in 0..COUNT {
        let size = 1 + number % 4096;
        sum += fill(&folder.path(&number.to_string()), size, number);
        bytes += size as u64;
    }
    let server = sharing(&folder, "");
    let program = Program::new("files_at_once").arg(&folder.path(".")).arg(&COUNT.to_string());
    let profile = folder.path("profile");
    let said = program.env("OUTBOARD_PROFILE", &profile).through(&server);
    said.expect_success("with many files");
    assert_eq!(said.stdout, format!("{bytes} bytes, sum {sum}\n"));
    let profile: Value = serde_json::from_slice(&std::fs::read(profile).unwrap()).unwrap();
    assert_eq!(moved(&profile), (bytes, 0, 0, 0), "{profile}");
}

/// What the server has in its page cache is not read from the storage again.
#[test]
fn many_clients_read_a_file_from_the_storage_once() {
    const BYTES: usize = 32 << 20;
    let (folder, theirs) = (Folder::create(), Folder::create());
    let sum = fill(&folder.path("file"), BYTES, 6);
    let storage = match WatchedFiles::mount(&folder.path(""), &theirs.path(""), Cache::Kept) {
        Ok(mounted) => mounted,
        Err(error) => skip!("nothing can be mounted here: {error}"),
    };
    let server = sharing_as(&folder, &theirs.path(""));
    let program = Program::new("file_reads").arg(&folder.path("file")).arg("1");
    let running: Vec<_> = (0..6)
        .map(|number| {
            let profile = folder.path(&format!("profile-{number}"));
            program.clone().env("OUTBOARD_PROFILE", &profile).start_through(&server)
        })
        .collect();
    for (number, mut running) in running.into_iter().enumerate() {
        running.wait_for_line(&format!("1: {BYTES} bytes, sum {sum}"));
        running.finish().expect_success("one of many");
        let profile = std::fs::read(folder.path(&format!("profile-{number}"))).unwrap();
        let profile: Value = serde_json::from_slice(&profile).unwrap();
        assert_eq!(moved(&profile), (BYTES as u64, 0, 0, 0), "{profile}");
    }
    let read = storage.read();
    assert!((BYTES as u64..BYTES as u64 * 21 / 20).contains(&read), "{read}");
}
