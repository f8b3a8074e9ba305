//! What belongs together, and what stays.

use super::*;

#[test]
fn an_answer_without_reasoning_follows_that_of_the_step_before() {
    let identified = |id: &str| with(call(id), "id", json!(format!("fc_{id}")));
    let follows = |entries: &[Value]| -> Vec<bool> {
        let units = units::split_units(&index_list(entries));
        units.iter().map(|unit| unit.follows_reasoning).collect()
    };
    let (a, b) = (identified("a"), identified("b"));
    assert_eq!(
        follows(&[
            user("u"),
            reasoning("rs_1"),
            a.clone(),
            output("a"),
            b.clone(),
            output("b"),
            answer("Done.")
        ]),
        [false, false, true, true]
    );
    // The second has reasoning of its own; without ids, a provider knows nothing of where a call belongs.
    for second in [&[reasoning("rs_2"), b.clone()][..], &[call("b")]] {
        let mut entries = vec![user("u"), reasoning("rs_1"), a.clone(), output("a")];
        entries.extend_from_slice(second);
        entries.push(output("b"));
        assert_eq!(follows(&entries), [false; 3]);
    }
    // What was noted before the reasoning of an answer rests on none, and what calls follow rests on it.
    let mut noted = vec![user("u"), reasoning("rs_1"), a.clone(), output("a")];
    noted.extend([answer("So."), reasoning("rs_2"), b.clone(), output("b")]);
    noted.extend([identified("c"), output("c")]);
    assert_eq!(follows(&noted), [false, false, false, true]);
    // A call before it may rest on the reasoning of the answer before.
    noted[4] = identified("d");
    assert_eq!(follows(&noted), [false, false, true, true]);
    // What has no reasoning leads to nothing; nor does what another message separates.
    assert_eq!(
        follows(&[user("u"), a.clone(), output("a"), b.clone(), output("b")]),
        [false; 3]
    );
    let developer = json!({"role": "developer", "content": "d"});
    assert_eq!(
        follows(&[
            user("u"),
            reasoning("rs_1"),
            a,
            output("a"),
            developer,
            b,
            output("b")
        ]),
        [false; 4]
    );
}

#[test]
fn what_follows_a_reasoning_keeps_it() {
    let identified = |id: &str| with(call(id), "id", json!(format!("fc_{id}")));
    let search = json!({"type": "tool_search_call", "id": "ts_1", "execution": "server"});
    let list = [
        user("u"),
        reasoning("rs_1"),
        identified("a"),
        output("a"),
        identified("b"),
        output("b"),
        search,
        user("v"),
        answer("Done."),
        user("w"),
    ];
    // The search stays.
    let all = units::split_units(&index_list(&list));
    let removable: Vec<_> = all.iter().map(units::Unit::is_removable).collect();
    assert_eq!(removable, [false, false, false, false, true, true, true]);
    // Nothing stays without it; no course begins between them.
    let all = units::split_units(&index_list(&[&list[..6], &list[7..]].concat()));
    let removable: Vec<_> = all.iter().map(units::Unit::is_removable).collect();
    assert_eq!(removable, [false, true, true, true, true, true]);
    let begins: Vec<_> = (1..=6)
        .map(|count| units::find_boundary_unit(&all, count))
        .collect();
    assert_eq!(begins, [1, 1, 1, 1, 3, 4]);
}

#[test]
fn what_is_not_known_stays() {
    let fixed = [
        json!({"type": "compaction", "id": "cmp_1", "encrypted_content": "ZW5j"}),
        json!({"type": "compaction_summary", "encrypted_content": "ZW5j"}),
        json!({"type": "additional_tools", "role": "developer", "tools": []}),
        json!({"type": "configuration_update", "reasoning": {"effort": "low"}}),
        json!({"type": "new_thing", "value": 1}),
        json!({"type": "new_thing_output", "value": 1}),
        json!({"role": "critic", "content": "x"}),
        json!({"type": "item_reference", "id": "msg_9"}),
    ];
    for entry in fixed {
        let found = index_list(&[user("u"), answer("a"), user("v"), entry.clone()]);
        assert_eq!(unit_lengths(&found), [-1, 1, 1, -1], "{entry}");
        assert_eq!(authors(&found)[3], Author::Unknown, "{entry}");
        assert!(found.items[3].sizes.total_chars() >= entry.to_string().len() - 2);
    }
    // Reasoning stays with the unknown entry that it led to, and so does the rest of the answer.
    let new_call = json!({"type": "new_call", "call_id": "n"});
    let found = index_list(&[
        user("u"),
        reasoning("rs_1"),
        new_call,
        call("a"),
        output("a"),
        user("v"),
    ]);
    assert_eq!(unit_lengths(&found), [-1, -2, 1]);
    // So does a search for tools, on whose result later calls rest.
    let search = json!({"type": "tool_search_call", "call_id": "s", "execution": "client", "arguments": {"query": "q"}});
    let tools =
        json!({"type": "tool_search_output", "call_id": "s", "execution": "client", "tools": []});
    let found = index_list(&[user("u"), reasoning("rs_1"), search, tools, user("v")]);
    assert_eq!(unit_lengths(&found), [-1, -2, 1]);
    let by_server = [
        json!({"type": "tool_search_call", "call_id": null, "execution": "server", "arguments": {}}),
        json!({"type": "tool_search_output", "call_id": null, "execution": "server", "tools": []}),
    ];
    let [search, tools] = by_server;
    let found = index_list(&[user("u"), search, tools, call("a"), output("a")]);
    assert_eq!(unit_lengths(&found), [-1, -2]);
}

/// The state after an answer is stored under its text and its calls: an answer in several items has another digest.
#[test]
fn an_answer_that_begins_with_a_new_type_is_one_item() {
    for kind in ["new_search_call", "new_approval_request"] {
        let new = json!({"type": kind, "id": "n_1", "status": "completed"});
        let found = index_list(&[user("u"), new.clone(), answer("a"), call("c"), output("c")]);
        assert_eq!(unit_lengths(&found), [-1, -2], "{kind}");
        let plain = index_list(&[user("u"), answer("a"), call("c"), output("c")]);
        assert_eq!(found.items[1].short_digest, plain.items[1].short_digest);
        // Alone it is an answer too.
        let found = index_list(&[user("u"), new, user("v")]);
        assert_eq!(authors(&found)[1], Author::Model, "{kind}");
        assert_eq!(unit_lengths(&found), [-1, -1, 1]);
    }
}

/// The units of a list: `.` may go, `!` stays, `?` stays for what needs it; those of a ring have its letter.
fn shown_units(list: &[Value]) -> String {
    let all = units::split_units(&index_list(list));
    let shown = all.iter().enumerate().map(|(at, unit)| {
        let ring = all[..=at].iter().position(|it| {
            it.bond.is_some() && it.bond.map(|it| it.last) == unit.bond.map(|it| it.last)
        });
        let ring = ring.map_or(String::new(), |first| {
            ((b'a' + first as u8) as char).to_string()
        });
        let state = match (unit.is_pinned, unit.is_needed) {
            (true, _) => '!',
            (false, true) => '?',
            (false, false) => '.',
        };
        format!("{}{state}{ring}", unit.messages.len())
    });
    shown.collect::<Vec<_>>().join(" ")
}

#[test]
fn outputs_pair_with_their_calls_at_any_distance() {
    let (u, v) = (user("u"), user("v"));
    let note = || json!({"role": "developer", "content": "n"});
    let list = |entries: &[Value]| shown_units(&[std::slice::from_ref(&u), entries].concat());
    // Pending, late, interrupted.
    assert_eq!(list(&[call("a"), v.clone()]), "1! 1? 1.");
    assert_eq!(
        list(&[call("a"), v.clone(), output("a"), v.clone()]),
        "1! 1.b 1. 1.b 1."
    );
    assert_eq!(
        list(&[call("a"), note(), output("a"), v.clone()]),
        "1! 1.b 1! 1.b 1."
    );
    // Some at once, some later; the rest of a row belongs to another answer.
    let some = [
        call("a"),
        call("b"),
        output("b"),
        call("c"),
        output("c"),
        output("a"),
        v.clone(),
    ];
    assert_eq!(list(&some), "1! 2.b 2. 1.b 1.");
    // One is still to come.
    assert_eq!(list(&[&some[..5], &some[6..]].concat()), "1! 2? 2. 1.");
    let two = [call("a"), call("b"), v.clone(), output("a"), v.clone()];
    assert_eq!(list(&two), "1! 1?b 1. 1?b 1.");
    // The nearest call before has it; an output without a call stays.
    let again = [
        call("a"),
        output("a"),
        call("a"),
        v.clone(),
        output("a"),
        output("x"),
        v,
    ];
    assert_eq!(list(&again), "1! 2. 1.c 1. 1.c 1! 1.");
}

/// Two of them side by side are refused.
#[test]
fn what_keeps_updates_of_the_configuration_apart_stays() {
    let update = || json!({"type": "configuration_update", "reasoning": {"effort": "low"}});
    let (v, w) = (user("v"), user("w"));
    let list = [
        user("u"),
        answer("a"),
        update(),
        v,
        answer("b"),
        update(),
        w,
    ];
    assert_eq!(shown_units(&list), "1! 1. 1! 1. 1! 1! 1.");
}

#[test]
fn a_program_is_one_with_its_calls() {
    let program =
        json!({"type": "program", "id": "p_1", "call_id": "p", "code": "x", "fingerprint": "f"});
    let done =
        json!({"type": "program_output", "call_id": "p", "result": "r", "status": "completed"});
    let by = |entry: Value| {
        with(
            entry,
            "caller",
            json!({"type": "program", "caller_id": "p"}),
        )
    };
    let list = [
        user("u"),
        program,
        by(call("a")),
        by(output("a")),
        by(call("b")),
        by(output("b")),
        done,
        answer("Done."),
        user("v"),
    ];
    assert_eq!(shown_units(&list), "1! 2.b 2.b 1.b 1. 1.");
    // At work, and without the program.
    assert_eq!(
        shown_units(&[&list[..6], &list[8..]].concat()),
        "1! 2?b 2?b 1."
    );
    assert_eq!(
        shown_units(&[&list[..1], &list[4..6], &list[8..]].concat()),
        "1! 2? 1."
    );
    // What led to one of them is none of them.
    let thought = [
        &list[..4],
        &[reasoning("rs_1"), answer("I see."), call("c"), output("c")],
    ]
    .concat();
    let thought = [
        &thought[..],
        &[with(by(call("b")), "id", json!("fc_9")), by(output("b"))],
        &list[6..],
    ]
    .concat();
    assert_eq!(shown_units(&thought), "1! 2.b 2. 2.b 1.b 1. 1.");
    let found = index_list(&list);
    let read = found.items.iter().map(|item| item.read_by_program);
    assert_eq!(
        read.collect::<Vec<_>>(),
        [false, false, true, false, true, false, false, false]
    );
}
