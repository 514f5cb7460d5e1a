//! The driver libraries as a loader and a runtime see them: symbols, look-up by version, tables,
//! and what is not there.

use std::collections::BTreeSet;
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::PathBuf;

use libloading::{Library, Symbol};

type GetProcAddress =
    unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> u32;
type GetProcAddress1 = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64) -> u32;

const SUCCESS: u32 = 0;
const INVALID_VALUE: u32 = 1;
const NOT_INITIALIZED: u32 = 3;
const NOT_FOUND: u32 = 500;
const NOT_SUPPORTED: u32 = 801;

fn path(which: &str) -> PathBuf {
    outboard_e2e::dist().join("lib/outboard").join(which).join("libcuda.so.1")
}

fn load(which: &str) -> Library {
    // SAFETY: our own library, whose initialisers do nothing.
    unsafe { Library::new(path(which)) }.unwrap()
}

fn address(library: &Library, name: &str) -> Option<*mut c_void> {
    // SAFETY: the symbol is only taken for its address.
    unsafe { library.get::<*mut c_void>(name.as_bytes()) }.ok().map(|symbol| *symbol)
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Names of the tables in a file of `api/`.
fn tables(file: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join(file)).unwrap();
    text.lines()
        .filter_map(|line| line.strip_prefix('[')?.strip_suffix(']'))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_symbol_of_the_headers_is_exported_and_nothing_else() {
    let mut wanted = tables("api/facts/driver-13.0.toml");
    wanted.extend(tables("api/facts/interop.toml"));
    assert!(wanted.len() > 650);
    for which in ["client", "cpu"] {
        let nm = std::process::Command::new("nm")
            .args(["-D", "--defined-only"])
            .arg(path(which))
            .output()
            .unwrap();
        let listed = String::from_utf8(nm.stdout).unwrap();
        let exported: BTreeSet<String> = listed
            .lines()
            .filter_map(|line| line.split_whitespace().nth(2))
            .map(str::to_owned)
            .collect();
        assert_eq!(exported, wanted, "{which}");
        let readelf =
            std::process::Command::new("readelf").arg("-d").arg(path(which)).output().unwrap();
        assert!(
            String::from_utf8_lossy(&readelf.stdout).contains("soname: [libcuda.so.1]"),
            "{which}"
        );
    }
}

#[test]
fn what_runtimes_ask_for_resolves_as_natively() {
    let facts = std::fs::read_to_string(root().join("api/facts/proc_address-13.0.tsv")).unwrap();
    let rows: Vec<Vec<&str>> = facts
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split('\t').collect())
        .collect();
    assert_eq!(rows.len(), 482);
    for which in ["client", "cpu"] {
        let library = load(which);
        // SAFETY: the functions have these types.
        let (two, one): (Symbol<'_, GetProcAddress>, Symbol<'_, GetProcAddress1>) = unsafe {
            (
                library.get(b"cuGetProcAddress_v2").unwrap(),
                library.get(b"cuGetProcAddress").unwrap(),
            )
        };
        for row in &rows {
            let [name, version, flags, symbol, result, status] = row[..] else { panic!("{row:?}") };
            let (version, flags): (c_int, u64) = (version.parse().unwrap(), flags.parse().unwrap());
            let c_name = CString::new(name).unwrap();
            let (mut found, mut said) = (std::ptr::dangling_mut(), -1);
            // SAFETY: valid arguments.
            let returned =
                unsafe { two(c_name.as_ptr(), &raw mut found, version, flags, &raw mut said) };
            let expected = if symbol == "-" {
                std::ptr::null_mut()
            } else {
                address(&library, symbol).unwrap()
            };
            assert_eq!(
                (returned.to_string(), said.to_string(), found),
                (result.into(), status.into(), expected),
                "{row:?}"
            );
            // SAFETY: valid arguments.
            let returned = unsafe { one(c_name.as_ptr(), &raw mut found, version, flags) };
            let wanted = if symbol == "-" { NOT_FOUND } else { SUCCESS };
            assert_eq!((returned, found), (wanted, expected), "version 1: {row:?}");
        }
    }
}

#[test]
fn look_up_follows_the_rules_of_the_header() {
    let library = load("client");
    // SAFETY: the function has this type.
    let look_up: Symbol<'_, GetProcAddress> =
        unsafe { library.get(b"cuGetProcAddress_v2").unwrap() };
    let ask = |name: &str, version: c_int, flags: u64| {
        let name = CString::new(name).unwrap();
        let (mut found, mut status) = (std::ptr::null_mut(), -1);
        // SAFETY: valid arguments.
        let result =
            unsafe { look_up(name.as_ptr(), &raw mut found, version, flags, &raw mut status) };
        (result, status, found)
    };
    let at = |symbol: &str| address(&library, symbol).unwrap();
    assert_eq!(ask("cuMemAlloc", 13000, 0), (SUCCESS, 0, at("cuMemAlloc_v2")));
    assert_eq!(
        ask("cuMemAlloc", 3010, 0),
        (SUCCESS, 0, at("cuMemAlloc")),
        "the newest ABI not newer than the version"
    );
    assert_eq!(ask("cuCtxSynchronize", 12080, 0), (SUCCESS, 0, at("cuCtxSynchronize")));
    assert_eq!(ask("cuCtxSynchronize", 13000, 0), (SUCCESS, 0, at("cuCtxSynchronize_v2")));
    assert_eq!(ask("cuLaunchKernel", 13000, 2), (SUCCESS, 0, at("cuLaunchKernel_ptsz")));
    assert_eq!(ask("cuLaunchKernel", 13000, 1), (SUCCESS, 0, at("cuLaunchKernel")));
    assert_eq!(ask("cuMemcpyHtoD", 13000, 2), (SUCCESS, 0, at("cuMemcpyHtoD_v2_ptds")));
    assert_eq!(
        ask("cuMemAlloc", 13000, 2),
        (SUCCESS, 0, at("cuMemAlloc_v2")),
        "no per-thread form: the legacy one"
    );
    assert_eq!(ask("cuNoSuchThing", 13000, 0), (SUCCESS, 1, std::ptr::null_mut()));
    assert_eq!(
        ask("cuGraphCreate", 9000, 0),
        (SUCCESS, 2, std::ptr::null_mut()),
        "the version is too old for it"
    );
    assert_eq!(ask("cuInit", 13010, 0).0, INVALID_VALUE, "newer than the driver");
    assert_eq!(ask("cuInit", -1, 0).0, INVALID_VALUE);
    assert_eq!(ask("cuInit", 13000, 4).0, INVALID_VALUE);
}

/// Every entry point that is marked unsupported answers so, whatever it is given.
#[test]
fn what_is_not_there_says_so() {
    let library = load("client");
    let mut asked = 0;
    for file in std::fs::read_dir(root().join("api/driver")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for line in text.lines().filter(|line| line.contains("tier = \"unsupported\"")) {
            let name = line.split_whitespace().next().unwrap();
            let function = address(&library, name).unwrap();
            // SAFETY: an unsupported function looks at none of its arguments.
            let function: unsafe extern "C" fn() -> u32 = unsafe { std::mem::transmute(function) };
            // SAFETY: as above.
            assert_eq!(unsafe { function() }, NOT_SUPPORTED, "{name}");
            asked += 1;
        }
    }
    assert!(asked > 50, "{asked}");
}

#[test]
fn before_initialisation_calls_say_so_and_tables_are_there() {
    let library = load("client");
    let call = |name: &str| {
        let function = address(&library, name).unwrap();
        // SAFETY: the functions called below check initialisation before their arguments, which are
        // null here.
        let function: unsafe extern "C" fn(usize, usize, usize, usize) -> u32 =
            unsafe { std::mem::transmute(function) };
        // SAFETY: as above.
        unsafe { function(0, 0, 0, 0) }
    };
    for name in [
        "cuDeviceGetCount",
        "cuCtxGetCurrent",
        "cuCtxSynchronize",
        "cuMemAlloc_v2",
        "cuStreamSynchronize",
        "cuMemFreeHost",
    ] {
        assert_eq!(call(name), NOT_INITIALIZED, "{name}");
    }
    type GetExportTable = unsafe extern "C" fn(*mut *const c_void, *const [u8; 16]) -> u32;
    // SAFETY: the function has this type.
    let get: Symbol<'_, GetExportTable> = unsafe { library.get(b"cuGetExportTable").unwrap() };
    // Their ids, and their sizes in bytes in driver 580; libraries look at no more than those.
    let tables: [(u128, usize); 8] = [
        (0x6bd5fb6c5bf4e74a8987d93912fd9df9, 104),
        (0xa094798c2e742e7493f20800200c0a66, 56),
        (0x42d85a8123f6cb478298f6e78a3aecdc, 24),
        (0xd4082055bde6704b8d34ba123c66e1f2, 24),
        (0x263e88607cd2614392f6bbd5006dfa7e, 120),
        (0x21318c60971432488ca641ff7324c8f2, 744),
        (0x6e163fbeb958444d835ce182aff1991e, 792),
        (0x1734dc26800d47458726c0f1e7dd8bca, 136),
    ];
    let mut table = std::ptr::null();
    for (id, bytes) in tables {
        // SAFETY: valid arguments.
        assert_eq!(unsafe { get(&raw mut table, &id.to_be_bytes()) }, SUCCESS, "{id:032x}");
        // SAFETY: the table's first word is its size in bytes.
        let size = unsafe { *table.cast::<usize>() };
        assert!(size >= bytes, "{id:032x} has {size} bytes");
        // SAFETY: the table has that many words.
        let slots =
            unsafe { std::slice::from_raw_parts(table.cast::<usize>(), size / size_of::<usize>()) };
        assert!(slots.iter().all(|slot| *slot != 0), "a null slot would crash its caller");
    }
    // SAFETY: valid arguments.
    assert_eq!(unsafe { get(&raw mut table, &[7; 16]) }, INVALID_VALUE, "an unknown table");
    // SAFETY: valid arguments.
    let parts = unsafe { get(&raw mut table, b"outboard-parts-1") };
    assert_eq!(parts, INVALID_VALUE, "for what checks accesses");
    let library = load("cpu");
    // SAFETY: the function has this type.
    let get: Symbol<'_, GetExportTable> = unsafe { library.get(b"cuGetExportTable").unwrap() };
    // SAFETY: valid arguments.
    assert_eq!(unsafe { get(&raw mut table, b"outboard-parts-1") }, SUCCESS);
    // SAFETY: the table's first word is its size in bytes.
    assert_eq!(unsafe { *table.cast::<usize>() }, 2 * size_of::<usize>());
}
