//! DescribeClientQuotas (KIP-546): the limits of the entities that a filter means.

use std::collections::HashSet;

use seawall_net::Flow;
use seawall_net::wire::messages::describe_client_quotas_request::ComponentData;
use seawall_net::wire::messages::describe_client_quotas_response::{
    EntityData, EntryData, ValueData,
};
use seawall_net::wire::messages::{DescribeClientQuotasRequest, DescribeClientQuotasResponse};

use super::codes::ErrorCode;
use super::quota_wire::{Refusal, invalid};
use super::{Asked, Call, answer, text};
use crate::security::acl::Operation;
use crate::security::quota::{Entity, EntityError, Match, QuotaKind, Wanted, canonical_ip};

const EXACT: i8 = 0;
const DEFAULT: i8 = 1;
const SPECIFIED: i8 = 2;

pub(super) fn handle(call: Call<'_>) -> Flow {
    answer(call, respond)
}

fn respond(
    asked: &Asked<'_>,
    request: &DescribeClientQuotasRequest,
) -> DescribeClientQuotasResponse {
    let mut response = DescribeClientQuotasResponse::default();
    response.error_message = None;
    match matching(asked, request) {
        Ok(entries) => response.entries = Some(entries),
        Err((code, message)) => {
            response.error_code = code.code();
            response.error_message = Some(text(&message));
            response.entries = None;
        }
    }
    response
}

fn matching(
    asked: &Asked<'_>,
    request: &DescribeClientQuotasRequest,
) -> Result<Vec<EntryData>, Refusal> {
    let allowed = asked.access().cluster(Operation::DescribeConfigs);
    allowed.map_err(|code| (code, "Cluster authorization failed.".into()))?;
    let components = request.components.iter();
    let wanted: Vec<Wanted> = components.map(wanted).collect::<Result<_, _>>()?;
    check(&wanted)?;
    let table = asked.broker.quotas.store().load();
    let rows = table.matching(&wanted, request.strict);
    Ok(rows.iter().map(entry).collect())
}

fn wanted(component: &ComponentData) -> Result<Wanted, Refusal> {
    let name = component.match_.as_ref().map(|name| name.as_str());
    let name = match (component.match_type, name) {
        (EXACT, Some(name)) if component.entity_type.as_str() == "ip" => {
            Match::Exactly(canonical_ip(name))
        }
        (EXACT, Some(name)) => Match::Exactly(name.to_owned()),
        (DEFAULT, None) => Match::Default,
        (SPECIFIED, None) => Match::Any,
        (EXACT, None) => {
            return Err(bad(
                "Request specified MATCH_TYPE_EXACT, but set the match string to null.",
            ));
        }
        (DEFAULT | SPECIFIED, Some(_)) => {
            return Err(bad(
                "A match string was given where the match type takes none.",
            ));
        }
        _ => return Err(bad("Unknown match type")),
    };
    Ok(Wanted {
        kind: component.entity_type.as_str().to_owned(),
        name,
    })
}

fn bad(why: &str) -> Refusal {
    (ErrorCode::InvalidRequest, why.to_owned())
}

/// Each part once; an address alone.
fn check(wanted: &[Wanted]) -> Result<(), Refusal> {
    let mut seen = HashSet::new();
    for one in wanted {
        if !["user", "client-id", "ip"].contains(&one.kind.as_str()) {
            // Kafka tells this one by a code of its own.
            let message = EntityError::UnknownType(one.kind.clone()).to_string();
            return Err((ErrorCode::UnsupportedVersion, message));
        }
        if !seen.insert(one.kind.as_str()) {
            return Err(invalid(&EntityError::Twice(one.kind.clone())));
        }
    }
    if seen.contains("ip") && seen.len() > 1 {
        return Err(invalid(&EntityError::IpWithOthers));
    }
    Ok(())
}

fn entry((entity, limits): &(Entity, Vec<(QuotaKind, f64)>)) -> EntryData {
    let mut row = EntryData::default();
    let parts = entity.parts().map(|(kind, name)| {
        let mut part = EntityData::default();
        part.entity_type = text(kind);
        part.entity_name = name.map(text);
        part
    });
    row.entity = parts.collect();
    let values = limits.iter().map(|(kind, limit)| {
        let mut value = ValueData::default();
        value.key = text(kind.name());
        value.value = *limit;
        value
    });
    row.values = values.collect();
    row
}
