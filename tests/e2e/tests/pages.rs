//! Memory that host and device both use: only what was touched moves, and page-locked memory that no kernel is given moves once.

use outboard_e2e::{Program, Server};

#[test]
fn only_what_was_touched_moves() {
    let server = Server::start();
    let file = std::env::temp_dir().join(format!("outboard-pages-{}.json", std::process::id()));
    let program = Program::new("touched_pages").env("OUTBOARD_PROFILE", file.to_str().expect("a plain path"));
    program.through(&server).expect_success("through a server");
    let text = std::fs::read_to_string(&file).expect("the program has left its statistics");
    let _ = std::fs::remove_file(&file);
    let all: serde_json::Value = serde_json::from_str(&text).expect("statistics are JSON");
    let number = |name: &str| all[name].as_u64().unwrap_or_else(|| panic!("no {name} in {text}"));
    let (page, pinned) = (4096, 32 << 20);
    // Ten rounds of 64 pages, and a few neighbours of those that are read; the page of the result; two words of mapped memory.
    for (direction, pages) in [("to", 11 * 64 * page), ("from", 10 * 64 * 6 * page)] {
        let (moved, copied) =
            (number(&format!("page_bytes_{direction}_device")), number(&format!("bytes_{direction}_device")));
        assert!(moved >= 64 * page && moved < pages, "{direction}: {moved} bytes of pages");
        assert!(copied >= pinned + moved && copied < pinned + moved + (2 << 20), "{direction}: {copied} bytes in all");
    }
    assert!(number("page_faults") >= 64, "{text}");
}
