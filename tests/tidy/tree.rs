//! The files of the tree as the rules see them.

use std::fs;
use std::path::{Path, PathBuf};

use super::rust::{Source, blank};

/// All folders with sources of ours.
pub(crate) const OURS: [&str; 6] = ["src", "net", "storage", "committer", "tests", "benches"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A file's text.
pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The manifests of all crates of the workspace.
pub(crate) fn manifests() -> Vec<String> {
    let root = read("Cargo.toml");
    let members = root.split("members = [").nth(1).unwrap_or_default();
    let members = members.split(']').next().unwrap_or_default();
    let names = members.split(',').map(|name| name.trim().trim_matches('"'));
    let names = names.filter(|name| !name.is_empty());
    let mut all: Vec<String> = names.map(|name| format!("{name}/Cargo.toml")).collect();
    all.push("Cargo.toml".to_owned());
    all
}

/// Whether there is such a file.
pub(crate) fn exists(path: &str) -> bool {
    root().join(path).is_file()
}

/// All Rust sources below some folders.
pub(crate) fn sources(folders: &[&str]) -> Vec<Source> {
    let mut paths = Vec::new();
    for folder in folders {
        collect(&root().join(folder), &mut paths);
    }
    paths.sort();
    assert!(!paths.is_empty(), "no sources below {folders:?}");
    paths.iter().map(|path| source(path)).collect()
}

fn source(path: &Path) -> Source {
    let relative = path.strip_prefix(root()).expect("below the root");
    let path = relative.to_string_lossy().into_owned();
    let text = read(&path);
    let code = blank(&text);
    Source { path, text, code }
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
    {
        let path = entry.expect("an entry").path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.is_dir() && !name.starts_with('.') && name != "target" && name != "node_modules" {
            collect(&path, paths);
        } else if name.ends_with(".rs") {
            paths.push(path);
        }
    }
}

/// The names in `[dependencies]` of a manifest. What tests and benches use is their business.
pub(crate) fn manifest_dependencies(path: &str) -> Vec<String> {
    let text = read(path);
    let section = text
        .split("\n[")
        .find(|section| section.trim_start_matches('[').starts_with("dependencies]"));
    let lines = section.unwrap_or_default().lines().skip(1).map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let names = lines.map(|line| {
        line.split(['.', '=', ' '])
            .next()
            .unwrap_or_default()
            .to_owned()
    });
    names.collect()
}

/// The rows of the first Markdown table whose header starts with `header`, as trimmed cells without backquotes.
pub(crate) fn markdown_rows(path: &str, header: &str) -> Vec<Vec<String>> {
    let text = read(path);
    let table = text
        .lines()
        .skip_while(|line| !line.starts_with(header))
        .skip(2);
    table
        .take_while(|line| line.starts_with('|'))
        .map(cells)
        .collect()
}

fn cells(row: &str) -> Vec<String> {
    let inner = row.trim().trim_matches('|');
    inner
        .split('|')
        .map(|cell| cell.trim().trim_matches('`').to_owned())
        .collect()
}

/// The names in the README's table of threads.
pub(crate) fn thread_table() -> Vec<String> {
    markdown_rows("README.md", "| name | count |")
        .into_iter()
        .filter_map(|row| row.into_iter().next())
        .collect()
}
