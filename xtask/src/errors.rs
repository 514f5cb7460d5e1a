//! Error codes stay what they are: the table in outboard-wire, `api/errors.lock` and the pages in
//! `docs/errors` agree.

use std::collections::BTreeMap;
use std::fs;

use crate::util::root;

/// What the lock file says of a code: its name, and whether it is retired.
fn locked() -> BTreeMap<String, (String, bool)> {
    let text =
        fs::read_to_string(root().join("api/errors.lock")).expect("api/errors.lock can be read");
    let mut locked = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (code, name, retired) = match words[..] {
            [code, name] => (code, name, false),
            [code, name, "retired"] => (code, name, true),
            _ => panic!("api/errors.lock has the line `{line}`"),
        };
        assert!(
            locked.insert(code.to_owned(), (name.to_owned(), retired)).is_none(),
            "{code} is locked twice"
        );
    }
    locked
}

/// The table, read as text: this crate depends on no other.
fn table() -> BTreeMap<String, String> {
    let text = fs::read_to_string(root().join("crates/outboard-wire/src/code.rs"))
        .expect("the table can be read");
    let rows = text.lines().filter_map(|line| line.trim().strip_suffix("\";")?.split_once(" \""));
    let codes = rows
        .filter_map(|(head, _)| head.split_once(' ').filter(|(code, _)| code.starts_with("OB")));
    codes.map(|(code, name)| (code.to_owned(), name.to_owned())).collect()
}

#[test]
fn codes_keep_their_meaning() {
    let (locked, table) = (locked(), table());
    assert!(table.len() > 30, "the table is found: {table:?}");
    for (code, name) in &table {
        match locked.get(code) {
            Some((known, false)) => {
                assert_eq!(known, name, "{code} has always been {known}: a code keeps its meaning")
            }
            Some((_, true)) => panic!("{code} is retired and must not be used again"),
            None => panic!("{code} {name} is not in api/errors.lock: run `cargo xtask codegen`"),
        }
    }
    for (code, (name, retired)) in &locked {
        assert!(
            *retired || table.contains_key(code),
            "{code} {name} is gone from code.rs: mark it `retired` in api/errors.lock"
        );
    }
}

#[test]
fn every_page_has_a_code() {
    let table = table();
    for entry in
        fs::read_dir(root().join("docs/errors")).expect("docs/errors can be listed").flatten()
    {
        let name = entry.file_name().to_string_lossy().into_owned();
        let code = name.strip_suffix(".md").unwrap_or(&name);
        assert!(
            code == "README" || table.contains_key(code),
            "docs/errors/{name} is the page of no code"
        );
    }
}
