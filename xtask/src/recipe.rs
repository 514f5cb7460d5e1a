//! The recipe of CONTRIBUTING.md for a function that makes one round trip is true of its example.

use std::collections::BTreeMap;
use std::fs;

use crate::codegen::camel;
use crate::tidy::files;
use crate::util::root;

const HEADING: &str = "## Adding a function that makes one round trip";

/// The recipe's text.
fn recipe() -> String {
    let page =
        fs::read_to_string(root().join("CONTRIBUTING.md")).expect("there is CONTRIBUTING.md");
    let (_, behind) = page.split_once(HEADING).expect("the page has the recipe");
    behind.split("\n## ").next().unwrap_or(behind).to_owned()
}

/// What is quoted in a line: the odd parts between backticks.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// The files of the numbered list, each with the names that are said to be in it.
fn listed(recipe: &str) -> BTreeMap<String, Vec<String>> {
    let numbered = recipe
        .lines()
        .filter_map(|line| line.split_once(". "))
        .filter(|(number, _)| number.parse::<u8>().is_ok());
    let lines = numbered.map(|(_, line)| quoted(line).map(str::to_owned));
    lines.map(|mut names| (names.next().expect("a line names its file"), names.collect())).collect()
}

/// The description in the recipe, and the name of its message.
fn description(recipe: &str) -> (String, String) {
    let code = recipe
        .split("```")
        .nth(1)
        .expect("the recipe has a description")
        .trim_start_matches("toml\n");
    let lines: Vec<&str> = code.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let name = lines[0].trim_matches(['[', ']']).to_owned();
    (format!("{}\n", lines.join("\n")), name)
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|other| other == word)
}

#[test]
fn each_file_of_the_recipe_has_the_names_that_it_says() {
    let recipe = recipe();
    let listed = listed(&recipe);
    assert_eq!(listed.len(), 6, "the recipe has six places: {:?}", listed.keys());
    for (path, names) in &listed {
        let text =
            fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(!names.is_empty(), "the recipe says nothing of {path}");
        for name in names {
            assert!(has_word(&text, name), "{path} does not have {name}, as the recipe says");
        }
    }
    let (description, _) = description(&recipe);
    let described = listed.keys().any(|path| {
        path.starts_with("api/wire/")
            && fs::read_to_string(root().join(path)).is_ok_and(|text| text.contains(&description))
    });
    assert!(described, "the recipe's description is not the one in api/wire/:\n{description}");
}

#[test]
fn nothing_else_by_hand_names_the_message_or_method_of_the_recipe() {
    let recipe = recipe();
    let (listed, (_, message)) = (listed(&recipe), description(&recipe));
    let mut generated = 0;
    for path in files(&[".rs", ".toml", ".lock"]) {
        let name = path
            .strip_prefix(root())
            .expect("it is in the repository")
            .to_string_lossy()
            .into_owned();
        if !(name.starts_with("crates/") || name.starts_with("api/")) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        let names_it = has_word(&text, &message) || has_word(&text, &camel(&message));
        if text.lines().next().is_some_and(|line| line.contains("`cargo xtask codegen`")) {
            generated += usize::from(names_it);
        } else if names_it {
            assert!(
                listed.contains_key(&name),
                "{name} names {message}, but the recipe does not name it"
            );
        }
    }
    assert!(
        generated >= 5,
        "codec, lock, dispatch, traits, forwarders and recorder are generated, and name {message}"
    );
}
