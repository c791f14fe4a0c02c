//! probe
use super::codes;
use super::txn_calls::{Tx, fetch_committed, init_once};
use crate::broker;
use seawall_testkit::calls::create_topic;

#[test]
fn probe() {
    let broker = broker();
    let mut raw = broker.connect();
    let raw = &mut raw;
    let topic = create_topic(raw, &broker.fresh("probe"), 3, &[]);
    let id = |s: &str| broker.fresh(s);
    macro_rules! say { ($($t:tt)*) => { eprintln!("P {}", format!($($t)*)) } }
    let rel =
        |tx: &Tx, base: i64, p: (i64, i16)| (p.0 == base || p.0 == -1, p.0 == tx.producer.0, p.1);
    // v1
    let tx = Tx::begin(raw, &id("a"));
    let base = tx.producer.0;
    say!("begin epoch {}", tx.producer.1);
    say!(
        "describe empty {:?}",
        (tx.describe(raw).0, tx.describe(raw).1, tx.describe(raw).3)
    );
    for v in [0, 1, 2, 4] {
        say!(
            "end v{v} nothing commit {:?} abort {:?}",
            tx.end_once(raw, v, true),
            tx.end_once(raw, v, false)
        );
    }
    for v in [3, 7, 10, 11] {
        say!(
            "produce v{v} not added {:?}",
            tx.send_once(raw, v, (&topic, 0), 0)
        );
    }
    say!(
        "add unknown {:?}",
        tx.add_once(raw, 3, &topic.name, &[0, 7])
    );
    say!(
        "add unknown topic {:?}",
        tx.add_once(raw, 3, "nope-nope", &[0])
    );
    let other = tx.called(&id("unknown"));
    for v in [0, 1, 2, 3] {
        say!(
            "add v{v} unknown id {:?}",
            other.add_once(raw, v, &topic.name, &[0])
        );
        say!(
            "add v{v} old epoch {:?} high epoch {:?}",
            tx.at_epoch(-1).add_once(raw, v, &topic.name, &[0]),
            tx.at_epoch(5).add_once(raw, v, &topic.name, &[0])
        );
    }
    say!(
        "add empty id {:?}",
        tx.called("").add_once(raw, 3, &topic.name, &[0])
    );
    for v in [3, 11] {
        say!(
            "produce v{v} unknown id {:?}",
            other.send_once(raw, v, (&topic, 0), 0)
        );
        say!(
            "produce v{v} high epoch {:?}",
            tx.at_epoch(5).send_once(raw, v, (&topic, 0), 0)
        );
    }
    say!("add {}", tx.add(raw, &topic, 0));
    say!("send {:?}", tx.send(raw, (&topic, 0), 0));
    say!(
        "send other partition {:?}",
        tx.send_once(raw, 11, (&topic, 1), 0)
    );
    let f = fetch_committed(raw, &topic, 0);
    say!(
        "fetch open {:?}",
        (
            f.code,
            f.high_watermark,
            f.last_stable,
            &f.aborted,
            f.batches.len()
        )
    );
    say!(
        "describe {:?}",
        (tx.describe(raw).0, tx.describe(raw).1, tx.describe(raw).3)
    );
    for v in [0, 1, 2, 4] {
        say!(
            "end v{v} epoch+1 {:?}, unknown id {:?}",
            tx.at_epoch(tx.producer.1 + 1).end_once(raw, v, true),
            other.end_once(raw, v, true)
        );
    }
    say!("end {}", tx.end(raw, true));
    say!("settled {}", tx.settled(raw));
    say!("end again commit {:?}", tx.end_once(raw, 4, true));
    say!("end again abort {:?}", tx.end_once(raw, 4, false));
    let f = fetch_committed(raw, &topic, 0);
    say!(
        "fetch {:?}",
        (
            f.code,
            f.high_watermark,
            f.last_stable,
            &f.aborted,
            f.batches.len()
        )
    );
    say!("send late {:?}", tx.send_once(raw, 11, (&topic, 0), 1));
    say!("add {}", tx.add(raw, &topic, 0));
    say!("add p2 {}", tx.add(raw, &topic, 2));
    say!("send {:?}", tx.send(raw, (&topic, 0), 1));
    say!("send {:?}", tx.send(raw, (&topic, 0), 2));
    say!("abort {}", tx.end(raw, false));
    say!("settled {}", tx.settled(raw));
    let f = fetch_committed(raw, &topic, 0);
    say!(
        "fetch {:?}",
        (
            f.code,
            f.high_watermark,
            f.last_stable,
            f.aborted.iter().map(|a| a.1).collect::<Vec<_>>(),
            f.batches.len()
        )
    );
    let f = fetch_committed(raw, &topic, 4);
    say!(
        "fetch at 4 {:?}",
        (
            f.code,
            f.high_watermark,
            f.last_stable,
            f.aborted.iter().map(|a| a.1).collect::<Vec<_>>(),
            f.batches.len()
        )
    );
    // fence
    say!("add {}", tx.add(raw, &topic, 0));
    say!("send {:?}", tx.send(raw, (&topic, 0), 3));
    let new = Tx::begin(raw, &tx.id);
    say!("fenced by {:?}", rel(&tx, base, new.producer));
    say!(
        "old sends {:?} v12 {:?}",
        tx.send_once(raw, 11, (&topic, 0), 4),
        tx.send_once(raw, 12, (&topic, 0), 4)
    );
    say!(
        "old ends v1 {:?} v2 {:?} v5 {:?}",
        tx.end_once(raw, 1, true),
        tx.end_once(raw, 2, true),
        tx.end_once(raw, 5, true)
    );
    say!(
        "old inits v3 {:?}",
        init_once(raw, 3, &tx.id, 60000, tx.producer).0
    );
    say!(
        "old inits v4 {:?}",
        init_once(raw, 4, &tx.id, 60000, tx.producer).0
    );
    say!("new adds {}", new.add(raw, &topic, 0));
    say!("new sends {:?}", new.send(raw, (&topic, 0), 0));
    let mut again = new.clone();
    say!(
        "goes on {} {:?}",
        again.init_again(raw),
        rel(&tx, base, again.producer)
    );
    let mut once_more = new.clone();
    say!(
        "goes on again {} {:?}",
        once_more.init_again(raw),
        rel(&tx, base, once_more.producer)
    );
    let mut third = once_more.clone();
    say!(
        "goes on third {} {:?}",
        third.init_again(raw),
        rel(&tx, base, third.producer)
    );
    let mut other_again = once_more.clone();
    say!(
        "goes on with the previous epoch {} {:?}",
        other_again.init_again(raw),
        rel(&tx, base, other_again.producer)
    );
    let mut old_again = new.clone();
    say!(
        "goes on with the old epoch {} {:?}",
        old_again.init_again(raw),
        rel(&tx, base, old_again.producer)
    );
    // bad
    say!(
        "timeout 0 {:?} big {:?} neg {:?}",
        init_once(raw, 4, &id("t"), 0, (-1, -1)).0,
        init_once(raw, 4, &id("t"), 900_001, (-1, -1)).0,
        init_once(raw, 4, &id("t"), -1, (-1, -1)).0
    );
    say!(
        "timeout max {:?}",
        init_once(raw, 4, &id("t"), 900_000, (-1, -1)).0
    );
    say!("empty id {:?}", init_once(raw, 4, "", 1000, (-1, -1)).0);
    say!(
        "half expected {:?} {:?}",
        init_once(raw, 4, &id("t"), 1000, (5, -1)).0,
        init_once(raw, 4, &id("t"), 1000, (-1, 3)).0
    );
    say!("expected on new id {:?}", {
        let r = init_once(raw, 4, &id("tn"), 1000, (5, 3));
        (r.0, r.1 >= 0, r.2)
    });
    say!("expected other pid {:?}", {
        let r = init_once(raw, 4, &tx.id, 1000, (base + 1000, 3));
        (r.0, r.1 >= 0, r.2)
    });
    say!(
        "describe unknown {:?} empty {:?}",
        other.describe(raw).0,
        tx.called("").describe(raw).0
    );
    // offsets
    let tx = Tx::begin(raw, &id("o"));
    let g = broker.fresh("group");
    super::txn_calls::find_coordinator(raw, 0, &g);
    for v in [0, 3, 4, 5] {
        say!(
            "txn offset commit v{v} without add {}",
            tx.commit_offset(raw, v, &g, (&topic.name, 0, 5))
        );
    }
    say!("described {:?}", tx.describe(raw).1);
    say!("abort {}", tx.end(raw, false));
    tx.settled(raw);
    for v in [0, 1, 2, 4] {
        say!(
            "add offsets v{v} unknown {} high {} empty group {}",
            other.add_offsets(raw, v, &g),
            tx.at_epoch(9).add_offsets(raw, v, &g),
            tx.add_offsets(raw, v, "")
        );
    }
    say!("described {:?}", tx.describe(raw).1);
    say!("add offsets {}", tx.add_offsets(raw, 3, &g));
    for v in [0, 3, 4] {
        say!(
            "txn offset commit v{v} {} high epoch {} low epoch {} unknown id {} unknown part {}",
            tx.commit_offset(raw, v, &g, (&topic.name, 0, 5)),
            tx.at_epoch(7)
                .commit_offset(raw, v, &g, (&topic.name, 0, 5)),
            tx.at_epoch(-1)
                .commit_offset(raw, v, &g, (&topic.name, 0, 5)),
            other.commit_offset(raw, v, &g, (&topic.name, 0, 5)),
            tx.commit_offset(raw, v, &g, (&topic.name, 9, 5))
        );
    }
    say!("commit {}", tx.end(raw, true));
    say!("settled {}", tx.settled(raw));
    // v2
    let mut tx = Tx::begin(raw, &id("v2"));
    let base = tx.producer.0;
    say!("v2 end commit of nothing {:?}", tx.end_once(raw, 5, true));
    let before = tx.clone();
    say!(
        "v2 abort of nothing {} {:?}",
        tx.end_v2(raw, false),
        rel(&tx, base, tx.producer)
    );
    say!("settled {}", tx.settled(raw));
    say!("repeat {:?}", {
        let r = before.end_once(raw, 5, false);
        (r.0, r.1.1)
    });
    say!("repeat commit {:?}", {
        let r = before.end_once(raw, 5, true);
        (r.0, r.1.1)
    });
    say!("v2 send {:?}", tx.send_v2(raw, (&topic, 1), 0));
    say!("v2 send {:?}", tx.send_v2(raw, (&topic, 1), 1));
    say!("v2 describe {:?}", (tx.describe(raw).1, tx.describe(raw).3));
    say!("v2 seq gap {:?}", tx.send_v2(raw, (&topic, 1), 7));
    say!(
        "v2 high {:?} low {:?}",
        tx.at_epoch(tx.producer.1 + 1)
            .send_once(raw, 12, (&topic, 1), 0),
        tx.at_epoch(tx.producer.1 - 1)
            .send_once(raw, 12, (&topic, 1), 0)
    );
    say!(
        "v2 end high {:?} low {:?}",
        tx.at_epoch(tx.producer.1 + 1).end_once(raw, 5, true),
        tx.at_epoch(tx.producer.1 - 1).end_once(raw, 5, true)
    );
    let before = tx.clone();
    say!(
        "v2 commit {} {:?}",
        tx.end_v2(raw, true),
        rel(&tx, base, tx.producer)
    );
    say!("settled {}", tx.settled(raw));
    say!("v2 repeat {:?}", {
        let r = before.end_once(raw, 5, true);
        (r.0, r.1.1)
    });
    say!("v2 repeat abort {:?}", {
        let r = before.end_once(raw, 5, false);
        (r.0, r.1.1)
    });
    say!("v2 commit of nothing {:?}", {
        let r = tx.end_once(raw, 5, true);
        (r.0, r.1.1)
    });
    say!(
        "v2 old sends {:?}",
        before.send_once(raw, 12, (&topic, 1), 2)
    );
    say!(
        "v2 continues at 2 {:?} 0 {:?}",
        tx.send_v2(raw, (&topic, 1), 2),
        tx.send_v2(raw, (&topic, 1), 0)
    );
    // v2 fenced
    let new = Tx::begin(raw, &tx.id);
    say!("v2 fenced {} -> {}", tx.producer.1, new.producer.1);
    say!(
        "v2 fenced sends {:?} ends {:?} {:?}",
        tx.send_once(raw, 12, (&topic, 1), 1),
        tx.end_once(raw, 5, true),
        tx.end_once(raw, 5, false)
    );
    say!(
        "v2 offsets v5 {}",
        new.commit_offset(raw, 5, &g, (&topic.name, 1, 9))
    );
    say!(
        "v2 describe {:?}",
        (new.describe(raw).1, new.describe(raw).3)
    );
    say!(
        "v2 high epoch {} unknown id {}",
        new.at_epoch(99)
            .commit_offset(raw, 5, &g, (&topic.name, 0, 5)),
        other.commit_offset(raw, 5, &g, (&topic.name, 0, 5))
    );
    // mixed: v1 end after v2
    say!("v1 end of v2 {}", new.end(raw, true));
    say!("settled {}", new.settled(raw));
    // timeouts
    let tx = Tx::begin_with_timeout(raw, &id("to"), 100);
    say!(
        "to add {} send {:?}",
        tx.add(raw, &topic, 2),
        tx.send(raw, (&topic, 2), 0)
    );
    seawall_testkit::wait::until("aborted", std::time::Duration::from_secs(30), || {
        tx.describe(raw).1 == "CompleteAbort"
    });
    say!("to epoch {} -> {}", tx.producer.1, tx.describe(raw).2.1);
    say!(
        "to sends {:?} v12 {:?}",
        tx.send_once(raw, 11, (&topic, 2), 1),
        tx.send_once(raw, 12, (&topic, 2), 1)
    );
    say!(
        "to ends v1 {:?} v2 {:?} v5 {:?} {:?}",
        tx.end_once(raw, 1, true),
        tx.end_once(raw, 4, true),
        tx.end_once(raw, 5, true),
        tx.end_once(raw, 5, false)
    );
    let mut again = tx.clone();
    say!("to goes on {} {}", again.init_again(raw), again.producer.1);
    let new = Tx::begin(raw, &tx.id);
    say!("to begins {}", new.producer.1);
    let _ = codes::NONE;
}
