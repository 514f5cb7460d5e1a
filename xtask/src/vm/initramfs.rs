//! The first file system of a machine: an archive in the format "newc" of cpio, as the kernel
//! unpacks it.

use super::{ORDER_FILE, Order, inner_name};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_755;

/// Folders that the first process mounts something on.
const MOUNTS: [&str; 6] = ["dev", "proc", "sys", "lower", "upper", "files"];

/// Writes the archive: this program as `init`, the libraries it is linked with, the modules and the
/// order.
pub(super) fn write(path: &Path, order: &Order, modules: &[PathBuf]) -> Result<()> {
    let program = std::env::current_exe().context("cannot tell where this program lies")?;
    let file =
        fs::File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    let mut archive = Archive { out: BufWriter::new(file), folders: BTreeSet::new(), entries: 0 };
    MOUNTS.iter().try_for_each(|name| archive.folder(Path::new(name)))?;
    archive.file(Path::new("init"), &program)?;
    for library in libraries(&program)? {
        archive.file(library.strip_prefix("/").unwrap_or(&library), &library)?;
    }
    for module in modules {
        archive.file(&Path::new("modules").join(inner_name(module)), module)?;
    }
    archive.entry(
        Path::new(ORDER_FILE),
        FILE,
        &serde_json::to_vec(order).context("cannot write the order")?,
    )?;
    archive.end().with_context(|| format!("cannot write {}", path.display()))
}

/// The loader and the libraries of a program, by the paths that the loader looks at.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().context("cannot start `ldd`")?;
    if !output.status.success() {
        bail!("`ldd {}` failed: {}", program.display(), String::from_utf8_lossy(&output.stderr));
    }
    Ok(paths(&String::from_utf8_lossy(&output.stdout)))
}

/// The paths in lines such as `libc.so.6 => /lib/libc.so.6 (0x…)` and
/// `/lib64/ld-linux-x86-64.so.2 (0x…)`.
fn paths(text: &str) -> Vec<PathBuf> {
    text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}

struct Archive<W: Write> {
    out: W,
    folders: BTreeSet<PathBuf>,
    entries: u32,
}

impl<W: Write> Archive<W> {
    fn file(&mut self, name: &Path, from: &Path) -> Result<()> {
        let content = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
        self.entry(name, FILE, &content)
    }

    /// A folder and those it lies in, each once.
    fn folder(&mut self, name: &Path) -> Result<()> {
        if name.as_os_str().is_empty() || self.folders.contains(name) {
            return Ok(());
        }
        self.folders.insert(name.to_path_buf());
        self.entry(name, FOLDER, &[])
    }

    fn entry(&mut self, name: &Path, mode: u32, content: &[u8]) -> Result<()> {
        if let Some(parent) = name.parent() {
            self.folder(parent)?;
        }
        self.entries += 1;
        let name = name.to_str().context("names in the archive are UTF-8")?;
        let size = u32::try_from(content.len()).context("a file in the archive is below 4 GiB")?;
        Ok(self.put(self.entries, name, mode, content, size)?)
    }

    /// A head of numbers in hexadecimal, the name and the content, the last two filled up to four
    /// bytes.
    fn put(
        &mut self,
        number: u32,
        name: &str,
        mode: u32,
        content: &[u8],
        size: u32,
    ) -> std::io::Result<()> {
        let length = name.len() as u32 + 1;
        write!(self.out, "070701")?;
        for field in [number, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, length, 0] {
            write!(self.out, "{field:08x}")?;
        }
        write!(self.out, "{name}\0")?;
        fill(&mut self.out, 110 + name.len() + 1)?;
        self.out.write_all(content)?;
        fill(&mut self.out, content.len())
    }

    fn end(mut self) -> std::io::Result<()> {
        self.put(0, "TRAILER!!!", 0, &[], 0)?;
        self.out.flush()
    }
}

fn fill(out: &mut impl Write, length: usize) -> std::io::Result<()> {
    out.write_all(&[0; 3][..length.next_multiple_of(4) - length])
}

#[cfg(test)]
mod tests {
    use super::{Archive, FILE, paths};
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn an_archive_has_heads_names_and_contents_at_multiples_of_four() {
        let mut bytes = Vec::new();
        let mut archive = Archive { out: &mut bytes, folders: BTreeSet::new(), entries: 0 };
        archive.entry(Path::new("a/b/c"), FILE, b"hello").unwrap();
        archive.entry(Path::new("a/b/d"), FILE, b"").unwrap();
        archive.end().unwrap();
        let (mut at, mut names) = (0, Vec::new());
        while at < bytes.len() {
            let head = std::str::from_utf8(&bytes[at..at + 110]).unwrap();
            assert_eq!(&head[..6], "070701");
            let field = |index: usize| {
                usize::from_str_radix(&head[6 + 8 * index..14 + 8 * index], 16).unwrap()
            };
            let (size, length) = (field(6), field(11));
            let name =
                std::str::from_utf8(&bytes[at + 110..at + 110 + length - 1]).unwrap().to_owned();
            at = (at + 110 + length).next_multiple_of(4);
            names.push((name, String::from_utf8(bytes[at..at + size].to_vec()).unwrap()));
            at = (at + size).next_multiple_of(4);
        }
        let wanted =
            [("a", ""), ("a/b", ""), ("a/b/c", "hello"), ("a/b/d", ""), ("TRAILER!!!", "")];
        assert_eq!(names, wanted.map(|(name, content)| (name.to_owned(), content.to_owned())));
    }

    #[test]
    fn the_loader_and_the_libraries_are_found() {
        let text = "\tlinux-vdso.so.1 (0x7f)\n\tlibc.so.6 => /lib/libc.so.6 (0x7f)\n\t/lib64/ld-linux-x86-64.so.2 (0x7f)\n";
        assert_eq!(
            paths(text),
            [Path::new("/lib/libc.so.6"), Path::new("/lib64/ld-linux-x86-64.so.2")]
        );
    }
}
