//! The dashboard and the alerts speak of metrics that there are, and every alert says what to do.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use regex::Regex;
use seawall_testkit::calls::{append, create_topic};
use seawall_testkit::{BatchBuilder, metrics};
use serde_json::Value;

use crate::{setup, tree};

/// Names of samples that a scrape can bring, by the packaged list, which a test of the broker keeps true.
fn samples() -> BTreeSet<String> {
    let list = tree("packaging/metrics.md");
    let mut names = BTreeSet::new();
    for row in list.lines().filter(|line| line.starts_with("| `")) {
        let mut cells = row.trim_start_matches("| `").split(" | ");
        let name = cells
            .next()
            .expect("a name")
            .trim_end_matches('`')
            .to_owned();
        if cells.next() == Some("histogram") {
            names.extend(["_bucket", "_sum", "_count"].map(|end| format!("{name}{end}")));
        } else {
            names.insert(name);
        }
    }
    assert!(names.len() > 50);
    names
}

fn named_in(text: &str) -> BTreeSet<String> {
    let name = Regex::new("seawall_[a-z_]+").expect("an expression");
    name.find_iter(text)
        .map(|found| found.as_str().to_owned())
        .collect()
}

/// All texts below keys of that name.
fn texts<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(map) => {
            for (name, below) in map {
                match below {
                    Value::String(text) if name == key => found.push(text),
                    other => texts(other, key, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|below| texts(below, key, found)),
        _ => {}
    }
}

#[test]
fn the_dashboard_asks_for_metrics_that_there_are() {
    let dashboard: Value =
        serde_json::from_str(&tree("packaging/grafana/seawall.json")).expect("JSON");
    let known = samples();
    let mut asked = Vec::new();
    texts(&dashboard, "expr", &mut asked);
    assert!(asked.len() > 40);
    for expr in asked {
        let named = named_in(expr);
        assert!(!named.is_empty(), "{expr} asks for nothing of ours");
        for name in named {
            assert!(known.contains(&name), "there is no {name}: {expr}");
        }
    }
}

#[test]
fn panels_of_the_dashboard_do_not_overlap_and_have_their_own_ids() {
    let dashboard: Value =
        serde_json::from_str(&tree("packaging/grafana/seawall.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut ids = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().expect("an id")));
        let at = |key: &str| panel["gridPos"][key].as_u64().expect("a place");
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(x < 24 && taken.insert((x, y)), "{}", panel["title"]);
            }
        }
    }
}

struct Alert {
    name: String,
    expr: String,
    runbook: String,
}

fn alerts() -> Vec<Alert> {
    let text = tree("packaging/prometheus/alerts.yml");
    let field = |block: &str, key: &str| {
        let line = block.lines().find_map(|line| line.trim().strip_prefix(key));
        line.unwrap_or_default().trim().to_owned()
    };
    let blocks = text.split("- alert: ").skip(1);
    blocks
        .map(|block| Alert {
            name: block.lines().next().unwrap_or_default().to_owned(),
            expr: field(block, "expr:"),
            runbook: field(block, "runbook:"),
        })
        .collect()
}

#[test]
fn alerts_ask_for_metrics_that_there_are_and_say_what_to_do() {
    let known = samples();
    let runbook = tree("packaging/prometheus/RUNBOOK.md");
    let chapters: Vec<&str> = runbook.split("\n## ").skip(1).collect();
    let alerts = alerts();
    assert!(alerts.len() > 15);
    assert_eq!(
        chapters.len(),
        alerts.len(),
        "a chapter for each alert and no other"
    );
    for alert in alerts {
        let named = named_in(&alert.expr);
        assert!(
            !named.is_empty() || alert.expr.contains("up{job="),
            "{}",
            alert.name
        );
        for name in named {
            assert!(known.contains(&name), "{}: there is no {name}", alert.name);
        }
        assert_eq!(
            alert.runbook,
            format!("RUNBOOK.md#{}", alert.name.to_lowercase())
        );
        let chapter = chapters
            .iter()
            .find_map(|text| text.strip_prefix(&format!("{}\n\n", alert.name)));
        assert!(
            chapter.is_some_and(|text| text.len() > 20),
            "no chapter for {}",
            alert.name
        );
    }
}

/// Prometheus' own tool, where `SEAWALL_PROMTOOL` names it.
fn promtool(words: &[&str], input: &str) {
    let Some(tool) = std::env::var_os("SEAWALL_PROMTOOL") else {
        eprintln!("left out: SEAWALL_PROMTOOL does not name promtool; `tests/run ops` brings it");
        return;
    };
    let mut run = Command::new(tool);
    run.args(words)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/prometheus"));
    run.stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = run.spawn().expect("run promtool");
    let mut stdin = child.stdin.take().expect("its input");
    stdin.write_all(input.as_bytes()).expect("write to it");
    drop(stdin);
    let done = child.wait_with_output().expect("its output");
    let told =
        String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "promtool {words:?}:\n{told}");
}

#[test]
fn promtool_accepts_the_alerts_and_their_tests_pass() {
    promtool(&["check", "rules", "alerts.yml"], "");
    promtool(&["test", "rules", "alerts_test.yml"], "");
}

#[test]
fn promtool_accepts_the_page_of_a_broker() {
    let broker = setup().start();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "told", 1, &[]);
    append(&mut raw, &topic, 0, BatchBuilder::of(&["a"]).build());
    promtool(&["check", "metrics"], &metrics::scrape(broker.admin()));
}
