//! AlterClientQuotas (KIP-546): limits count, durably, when the answer is out.

use std::sync::Arc;

use seawall_net::Flow;
use seawall_net::wire::messages::alter_client_quotas_request::EntryData as Wanted;
use seawall_net::wire::messages::alter_client_quotas_response::{EntityData, EntryData};
use seawall_net::wire::messages::{AlterClientQuotasRequest, AlterClientQuotasResponse};

use super::codes::ErrorCode;
use super::quota_wire::{Refusal, invalid, refusal};
use super::{Asked, Call, answer_from, text};
use crate::security::acl::Operation;
use crate::security::quota::{Alteration, Entity, EntityError};

pub(super) fn handle(call: Call<'_>) -> Flow {
    let broker = Arc::clone(call.broker);
    answer_from(call, &broker.state_workers(), respond)
}

fn respond(asked: &Asked<'_>, request: &AlterClientQuotasRequest) -> AlterClientQuotasResponse {
    let allowed = asked.access().cluster(Operation::AlterConfigs);
    let allowed = allowed.map_err(|code| (code, "Cluster authorization failed.".to_owned()));
    let wanted: Vec<Result<Alteration, Refusal>> = request.entries.iter().map(alteration).collect();
    let good: Vec<Alteration> = wanted.iter().flatten().cloned().collect();
    let altered = allowed.and_then(|()| {
        if request.validate_only {
            return Ok(());
        }
        asked.broker.quotas.alter(&good).map_err(refusal)
    });
    let mut response = AlterClientQuotasResponse::default();
    let rows = request.entries.iter().zip(wanted);
    response.entries = rows
        .map(|(asked, wanted)| match &altered {
            Err(refusal) => row(asked, Err(refusal.clone())),
            Ok(()) => row(asked, wanted.map(drop)),
        })
        .collect();
    response
}

fn alteration(wanted: &Wanted) -> Result<Alteration, Refusal> {
    let mut entity = Entity::default();
    for part in &wanted.entity {
        let name = part.entity_name.as_ref().map(|name| name.as_str());
        let put = entity.put(part.entity_type.as_str(), name);
        put.map_err(|error| invalid(&error))?;
    }
    entity.check().map_err(|error| invalid(&error))?;
    let mut limits = Vec::with_capacity(wanted.ops.len());
    for op in &wanted.ops {
        let kind = entity.kind_of(op.key.as_str());
        let kind = kind.map_err(|error| invalid(&error))?;
        if limits.iter().any(|(known, _)| *known == kind) {
            return Err(invalid(&EntityError::Twice(kind.name().to_owned())));
        }
        if !op.remove {
            kind.check(op.value).map_err(|error| invalid(&error))?;
        }
        limits.push((kind, (!op.remove).then_some(op.value)));
    }
    Ok(Alteration { entity, limits })
}

fn row(asked: &Wanted, outcome: Result<(), Refusal>) -> EntryData {
    let mut row = EntryData::default();
    row.error_code = ErrorCode::None.code();
    row.error_message = None;
    if let Err((code, message)) = outcome {
        row.error_code = code.code();
        row.error_message = Some(text(&message));
    }
    let parts = asked.entity.iter().map(|part| {
        let mut same = EntityData::default();
        same.entity_type = text(part.entity_type.as_str());
        same.entity_name = part.entity_name.as_ref().map(|name| text(name.as_str()));
        same
    });
    row.entity = parts.collect();
    row
}
