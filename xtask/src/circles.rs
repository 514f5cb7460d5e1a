//! No large circle of files: files that import each other can only be understood, and changed,
//! together.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use crate::util::root;

/// The most files that may import each other in a circle.
const MOST: usize = 8;

/// Names from the crate's root: of a module, or of something in one.
type Names = Vec<String>;

/// The code of one crate: each module that has a file of its own.
#[derive(Default)]
struct Code {
    modules: BTreeMap<Names, Module>,
    /// Modules that only tests have.
    of_tests: BTreeSet<Names>,
}

struct Module {
    file: String,
    tokens: Vec<TokenTree>,
}

/// Which files each file imports, each with one path by which it does.
type Imports = BTreeMap<String, BTreeMap<String, String>>;

impl Code {
    fn read(folder: &Path) -> Code {
        let mut code = Code::default();
        code.collect(folder, folder, &[]);
        code
    }

    fn collect(&mut self, source: &Path, folder: &Path, above: &[String]) {
        for entry in fs::read_dir(folder).expect("a folder can be listed").flatten() {
            let path = entry.path();
            let stem = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
            let mut names = above.to_vec();
            if path.is_dir() {
                names.push(stem);
                self.collect(source, &path, &names);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                if !(stem == "mod" || above.is_empty() && matches!(&*stem, "lib" | "main")) {
                    names.push(stem);
                }
                let text = fs::read_to_string(&path).expect("a file can be read");
                let file = path.strip_prefix(source).expect("it lies there").display().to_string();
                self.add(names, file, &text);
            }
        }
    }

    fn add(&mut self, names: Names, file: String, text: &str) {
        let tokens = text.parse::<TokenStream>().unwrap_or_else(|error| panic!("{file}: {error}"));
        let (tokens, of_tests) = without_tests(tokens);
        for name in of_tests {
            self.of_tests.insert([names.clone(), vec![name]].concat());
        }
        self.modules.insert(names, Module { file, tokens });
    }

    fn imports(&self) -> Imports {
        let mut imports = Imports::new();
        for (names, module) in &self.modules {
            if self.of_tests.iter().any(|of_tests| names.starts_with(of_tests)) {
                continue;
            }
            let found = imports.entry(module.file.clone()).or_default();
            let mut reader = Reader { code: self, aliases: BTreeMap::new(), paths: Vec::new() };
            reader.uses(&module.tokens, names);
            reader.expressions(&module.tokens, names);
            for path in reader.paths {
                let imported = &self.modules[self.module_of(&path)].file;
                if *imported != module.file {
                    found.entry(imported.clone()).or_insert_with(|| path.join("::"));
                }
            }
        }
        imports
    }

    /// The module with a file in which the path ends.
    fn module_of<'a>(&self, path: &'a [String]) -> &'a [String] {
        let lengths = (0..=path.len()).rev();
        let mut prefixes = lengths.map(|length| &path[..length]);
        prefixes.find(|prefix| self.modules.contains_key(*prefix)).expect("a crate has a root")
    }
}

/// The paths from the crate's root that one file names.
struct Reader<'a> {
    code: &'a Code,
    /// Modules under the names by which the file imports them.
    aliases: BTreeMap<String, Names>,
    paths: Vec<Names>,
}

impl Reader<'_> {
    /// Reads the `use`s of the module `names`.
    fn uses(&mut self, tokens: &[TokenTree], names: &[String]) {
        each_module(tokens, names, &mut |tokens, names| {
            for (start, _) in tokens.iter().enumerate().filter(|(_, token)| is(token, "use")) {
                let end = tokens[start..].iter().position(|token| is(token, ";"));
                let tree = &tokens[start + 1..end.map_or(tokens.len(), |end| start + end)];
                self.tree(tree, names, &[]);
            }
        });
    }

    /// Reads what stands behind `before` in a `use`.
    fn tree(&mut self, tree: &[TokenTree], names: &[String], before: &[String]) {
        let mut path = before.to_vec();
        let mut alias = None;
        for (index, token) in tree.iter().enumerate() {
            match token {
                TokenTree::Group(list) => {
                    let inside: Vec<_> = list.stream().into_iter().collect();
                    let parts = inside.split(|token| is(token, ","));
                    parts.for_each(|part| self.tree(part, names, &path));
                    return;
                }
                token if is(token, "as") => {
                    alias = tree.get(index + 1).map(ToString::to_string);
                    break;
                }
                TokenTree::Ident(_) => path.push(token.to_string()),
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let Some(path) = self.path_from_root(&path, names) else { return };
        match path.last() {
            // What the file takes from the module is seen where it names it.
            Some(last) if self.code.modules.contains_key(&path) && !is_glob(tree) => {
                self.aliases.insert(alias.unwrap_or_else(|| last.clone()), path);
            }
            _ => self.paths.push(path),
        }
    }

    /// Reads the paths outside of `use`.
    fn expressions(&mut self, tokens: &[TokenTree], names: &[String]) {
        each_module(tokens, names, &mut |tokens, names| {
            let mut index = 0;
            while index < tokens.len() {
                let mut path = Vec::new();
                if is(&tokens[index], "use") {
                    let end = tokens[index..].iter().position(|token| is(token, ";"));
                    index = end.map_or(tokens.len(), |end| index + end);
                }
                while let Some(TokenTree::Ident(name)) = tokens.get(index) {
                    path.push(name.to_string());
                    let [Some(first), Some(second)] =
                        [tokens.get(index + 1), tokens.get(index + 2)]
                    else {
                        break;
                    };
                    if !is(first, ":") || !is(second, ":") {
                        break;
                    }
                    index += 3;
                }
                if path.len() > 1
                    && let Some(path) = self.path_from_root(&path, names)
                {
                    self.paths.push(path);
                }
                index += 1;
            }
        });
    }

    /// A path of this crate from its root; nothing if the path is none of this crate's.
    fn path_from_root(&self, path: &[String], names: &[String]) -> Option<Names> {
        let (first, rest) = path.split_first()?;
        let mut from = match &**first {
            "crate" => Vec::new(),
            "self" => names.to_vec(),
            "super" => names.split_last()?.1.to_vec(),
            name => {
                let child = [names, std::slice::from_ref(first)].concat();
                match self.aliases.get(name) {
                    Some(module) => module.clone(),
                    None if self.code.modules.contains_key(&child) => child,
                    None => return None,
                }
            }
        };
        for name in rest {
            if name == "super" {
                from.pop();
            } else {
                from.push(name.clone());
            }
        }
        Some(from)
    }
}

/// Calls `read` with each list of tokens in a file, without those in groups, and the names of the
/// module in which it stands.
fn each_module(
    tokens: &[TokenTree],
    names: &[String],
    read: &mut impl FnMut(&[TokenTree], &[String]),
) {
    read(tokens, names);
    for (index, token) in tokens.iter().enumerate() {
        let TokenTree::Group(group) = token else { continue };
        let inside: Vec<_> = group.stream().into_iter().collect();
        let is_module = index > 1 && is(&tokens[index - 2], "mod") && is_block(group);
        if is_module {
            let name = tokens[index - 1].to_string();
            each_module(&inside, &[names, &[name]].concat(), read);
        } else if index == 0 || !is_visibility(&tokens[index - 1]) {
            each_module(&inside, names, read);
        }
    }
}

/// The tokens without items that only tests have, and the names of the modules among those.
fn without_tests(tokens: TokenStream) -> (Vec<TokenTree>, Vec<String>) {
    let (mut kept, mut of_tests) = (Vec::<TokenTree>::new(), Vec::new());
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) if is_cfg_test(&group) => {
                kept.pop();
                let mut before = None;
                for token in tokens.by_ref() {
                    if before.as_ref().is_some_and(|before| is(before, "mod")) {
                        of_tests.push(token.to_string());
                    }
                    let is_end = match &token {
                        TokenTree::Group(group) => is_block(group),
                        token => is(token, ";") || is(token, ","),
                    };
                    if is_end {
                        break;
                    }
                    before = Some(token);
                }
            }
            TokenTree::Group(group) => {
                let inside = without_tests(group.stream()).0.into_iter().collect();
                kept.push(Group::new(group.delimiter(), inside).into());
            }
            token => kept.push(token),
        }
    }
    (kept, of_tests)
}

fn is_cfg_test(group: &Group) -> bool {
    group.delimiter() == Delimiter::Bracket
        && matches!(&*group.to_string().replace(' ', ""), "[cfg(test)]")
}

fn is_block(group: &Group) -> bool {
    group.delimiter() == Delimiter::Brace
}

/// Is this the `pub` of `pub(in super::super)`?
fn is_visibility(token: &TokenTree) -> bool {
    is(token, "pub")
}

fn is_glob(tree: &[TokenTree]) -> bool {
    tree.last().is_some_and(|last| is(last, "*"))
}

fn is(token: &TokenTree, text: &str) -> bool {
    match token {
        TokenTree::Ident(name) => name == text,
        TokenTree::Punct(sign) => text.chars().eq([sign.as_char()]),
        TokenTree::Group(_) | TokenTree::Literal(_) => false,
    }
}

/// The files that import each other in circles, each circle once.
fn circles(imports: &Imports) -> Vec<BTreeSet<&str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        imports.keys().map(|file| (&**file, reached_from(imports, file))).collect();
    let mut circles: Vec<BTreeSet<&str>> = Vec::new();
    for (file, others) in &reached {
        let circle: BTreeSet<&str> =
            others.iter().copied().filter(|other| reached[other].contains(file)).collect();
        if !circle.is_empty() && !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles
}

/// All files that the file imports, or that these import, and so on.
fn reached_from<'a>(imports: &'a Imports, file: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&str> = imports[file].keys().map(|other| &**other).collect();
    while let Some(other) = next.pop() {
        if reached.insert(other) {
            next.extend(imports[other].keys().map(|other| &**other));
        }
    }
    reached
}

/// The files of a circle, and the imports that tie them.
fn describe(imports: &Imports, circle: &BTreeSet<&str>) -> String {
    let mut lines = Vec::new();
    for file in circle {
        let inside = imports[*file].iter().filter(|(other, _)| circle.contains(&***other));
        let paths = inside.map(|(_, path)| &**path).collect::<Vec<_>>().join(", ");
        lines.push(format!("  {file} imports {paths}"));
    }
    lines.join("\n")
}

#[test]
fn no_large_circle_of_files() {
    let mut wrong = Vec::new();
    for entry in fs::read_dir(root().join("crates")).expect("there are crates").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let imports = Code::read(&entry.path().join("src")).imports();
        assert!(!imports.is_empty(), "{name} has sources");
        let circles = circles(&imports);
        for circle in circles.iter().filter(|circle| circle.len() > MOST) {
            let files = describe(&imports, circle);
            wrong.push(format!("{name}: {} files, at most {MOST} may be\n{files}", circle.len()));
        }
    }
    assert!(wrong.is_empty(), "files that import each other in a circle\n{}", wrong.join("\n"));
}

/// Which modules import which.
fn sample(files: &[(&str, &str)]) -> Vec<String> {
    let mut code = Code::default();
    for (module, text) in files {
        let names = module.split("::").skip(1).map(str::to_owned).collect();
        code.add(names, (*module).to_owned(), text);
    }
    let imports = code.imports();
    let pairs = imports.iter().flat_map(|(file, of)| of.keys().map(move |other| (file, other)));
    pairs.map(|(file, other)| format!("{file} -> {other}")).collect()
}

#[test]
fn imports_are_read_from_all_forms() {
    let files = [
        ("crate", "mod a; mod b; pub struct Top;"),
        ("crate::a", "pub mod x; pub mod y; pub use y::Given; pub fn f() { x::call() }"),
        ("crate::a::x", "use super::{y::{self, Thing}, *}; fn call() { y::go() }"),
        ("crate::a::y", "use crate::b; pub(in super::super) struct Given; fn go() { b::c::go() }"),
        ("crate::b", "mod c; mod inner { use super::c::go as walk; }"),
        ("crate::b::c", "fn go(top: crate::Top) { vec![super::super::a::Given] }"),
    ];
    let expected = [
        "crate::a -> crate::a::x",
        "crate::a -> crate::a::y",
        "crate::a::x -> crate::a",
        "crate::a::x -> crate::a::y",
        "crate::a::y -> crate::b::c",
        "crate::b -> crate::b::c",
        "crate::b::c -> crate",
        "crate::b::c -> crate::a",
    ];
    assert_eq!(sample(&files), expected);
}

#[test]
fn tests_comments_and_strings_import_nothing() {
    let files = [
        ("crate", "mod a; #[cfg(test)] mod b; #[cfg(test)] mod tests { use super::a::Thing; }"),
        ("crate::a", "/// See [crate::b::x].\nfn f() -> &'static str { \"crate::b::x\" }"),
        ("crate::b", "use crate::a::f;"),
    ];
    assert_eq!(sample(&files), Vec::<String>::new());
}

#[test]
fn circles_are_found() {
    let tied = |pairs: &[(&str, &str)]| {
        let mut imports = Imports::new();
        for (file, other) in pairs {
            imports.entry((*other).to_owned()).or_default();
            let of = imports.entry((*file).to_owned()).or_default();
            of.insert((*other).to_owned(), (*other).to_owned());
        }
        let names = circles(&imports);
        names.iter().map(|circle| circle.iter().copied().collect()).collect::<Vec<String>>()
    };
    let none = tied(&[("a", "b"), ("b", "c"), ("a", "c")]);
    assert!(none.is_empty());
    let two = tied(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e"), ("e", "d")]);
    assert_eq!(two, ["abc", "de"]);
}
