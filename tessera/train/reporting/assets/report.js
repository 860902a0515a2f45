'use strict';
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const $ = id => document.getElementById(id);
  const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const steps = data.metrics.filter(line => line.event === undefined);
  const evals = data.metrics.filter(line => line.event === 'eval');
  const end = data.metrics.find(line => line.event === 'end');
  const last = steps[steps.length - 1], lastEval = evals[evals.length - 1];
  const number = x => typeof x === 'number' ? x : NaN;  // "nan" and "inf" are written as text

  const count = x => {
    for (const [limit, unit] of [[1e12, ' T'], [1e9, ' G'], [1e6, ' M'], [1e3, ' k']])
      if (Math.abs(x) >= limit) return (x / limit).toFixed(1) + unit;
    return Number.isInteger(x) ? String(x) : x.toPrecision(4);
  };
  const bytes = x => {
    for (const [limit, unit] of [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB']])
      if (x >= limit) return (x / limit).toFixed(1) + ' ' + unit;
    return x + ' B';
  };
  const percent = x => (100 * x).toFixed(0) + ' %';
  const duration = s => {
    s = Math.round(s);
    const pad = n => String(n).padStart(2, '0');
    return s >= 3600 ? `${Math.floor(s / 3600)}:${pad(Math.floor(s / 60) % 60)}:${pad(s % 60)}` : `${Math.floor(s / 60)}:${pad(s % 60)}`;
  };
  const element = (tag, text, className) => {
    const e = document.createElement(tag);
    if (text !== undefined) e.textContent = text;
    if (className) e.className = className;
    return e;
  };
  const row = (cells, className) => {
    const tr = element('tr', undefined, className);
    for (const [text, cellClass, tag] of cells) tr.appendChild(element(tag || 'td', text, cellClass));
    return tr;
  };

  $('title').textContent = data.summary.title;
  document.title = data.summary.title + ' \u2013 Tessera';
  $('subtitle').textContent = data.summary.lines.join(' \u00b7 ');
  $('footer').textContent = data.summary.footer;
  const reason = end ? end.reason : 'running';
  $('state').textContent = {done: 'finished', running: 'running'}[reason] || reason;
  $('state').classList.add({done: 'done', running: 'running'}[reason] || 'stopped');

  const tile = (value, label) => {
    const t = element('div', undefined, 'tile');
    t.append(element('b', value), element('span', label));
    $('tiles').appendChild(t);
  };
  if (last) tile(number(last.loss).toFixed(4), 'training loss');
  if (lastEval) tile(number(lastEval.eval_loss).toFixed(4), 'validation loss');
  if (lastEval) tile(count(number(lastEval.perplexity)), 'perplexity');
  const speed = end ? end.tokens_per_second : last && last.tokens_per_second;
  if (speed) tile(count(speed), 'tokens per second');
  if (end) tile(duration(end.seconds), 'training time');
  if (last) tile(bytes(last.peak_memory_bytes), 'peak memory');
  const rate = end && end.peak_flops_per_second > 0 ? end.model_flops_per_second / end.peak_flops_per_second : last && last.mfu;
  if (rate) tile(percent(rate), 'MFU (measured)');

  const advice = data.advice || '', colon = advice.indexOf(': ');
  if (steps.length > 0 && colon > 0) {
    $('bound').textContent = advice.slice(0, colon);
    const text = advice.slice(colon + 2);
    $('advice').textContent = text.charAt(0).toUpperCase() + text.slice(1) + '.';
  } else {
    $('advice-card').hidden = true;
  }

  // ---- curves: all share the x range -------------------------------------------------------------------------
  const graphs = [];
  let syncing = false;
  const legendOf = (id, format) => legend => {
    const target = $(id + '-legend');
    if (legend.x === undefined && legend.series.every(s => s.y === undefined)) {
      target.innerHTML = legend.series.filter(s => s.isVisible).map(s => `<span><i style="background:${s.color}"></i>${s.labelHTML}</span>`).join('');
    } else {
      target.innerHTML = `<span>step <b>${legend.xHTML}</b></span>` + legend.series.filter(s => s.isVisible && s.y !== undefined && !isNaN(s.y) && s.y !== null)
        .map(s => `<span><i style="background:${s.color}"></i>${s.labelHTML} <b>${format(s.y)}</b></span>`).join('');
    }
    return '';
  };
  const chart = (id, rows, labels, colors, format, options) => {
    if (rows.length === 0) { $(id).parentElement.hidden = true; return; }
    const hidden = element('div');
    const graph = new Dygraph($(id), rows, Object.assign({
      labels: ['step', ...labels], colors: colors.map(color), legendFormatter: legendOf(id, format), legend: 'always', labelsDiv: hidden,
      axes: {x: {axisLabelFormatter: x => Number.isInteger(x) ? count(x).replace('.0 ', ' ') : '', drawGrid: false}, y: {axisLabelFormatter: format, axisLabelWidth: 58}},
      gridLineColor: color('--grid'), axisLineColor: color('--line'), strokeWidth: 1.8, highlightCircleSize: 4, connectSeparatedPoints: true,
      drawPoints: rows.length < 3, pointSize: 3, rangeSelectorHeight: 28, xRangePad: 6, fillAlpha: 0.1,
      drawCallback: (g, first) => {
        if (syncing || first) return;
        syncing = true;
        const range = g.xAxisRange();
        for (const other of graphs) if (other.graph !== g) other.graph.updateOptions({dateWindow: range});
        syncing = false;
      },
    }, options || {}));
    graphs.push({graph, colors});
  };

  const lossRows = smoothing => {
    const byStep = new Map();
    let average;
    for (const line of steps) {
      const loss = number(line.loss);
      average = average === undefined || isNaN(average) ? loss : smoothing * average + (1 - smoothing) * loss;
      byStep.set(line.step, [line.step, average, null]);
    }
    for (const line of evals) {
      if (!byStep.has(line.step)) byStep.set(line.step, [line.step, null, null]);
      byStep.get(line.step)[2] = number(line.eval_loss);
    }
    return [...byStep.values()].sort((a, b) => a[0] - b[0]);
  };
  const fixed4 = y => y.toFixed(Math.abs(y) >= 100 ? 1 : 3);
  chart('loss', lossRows(0), ['training', 'validation'], ['--c0', '--c1'], fixed4,
        {series: {validation: {drawPoints: true, pointSize: 3}}, visibility: [true, evals.length > 0],
         underlayCallback: (canvas, area, graph) => {
           // The baseline: the score of guessing by token frequency alone.
           const entropy = data.unigram_entropy, [low, high] = graph.yAxisRange(0);
           if (!entropy || entropy < low || entropy > high) return;
           const y = Math.round(graph.toDomYCoord(entropy)) + 0.5;
           canvas.save();
           canvas.strokeStyle = canvas.fillStyle = color('--muted');
           canvas.setLineDash([4, 4]);
           canvas.beginPath();
           canvas.moveTo(area.x, y);
           canvas.lineTo(area.x + area.w, y);
           canvas.stroke();
           canvas.font = '11px system-ui, "DejaVu Sans", sans-serif';
           canvas.textAlign = 'right';
           canvas.fillText('unigram entropy ' + entropy.toFixed(3), area.x + area.w - 4, y - 5);
           canvas.restore();
         }});
  const lossGraph = graphs.length > 0 ? graphs[0].graph : null;
  chart('throughput', steps.map(l => [l.step, l.tokens_per_second]), ['tokens/s'], ['--c2'], count, {includeZero: true, fillGraph: true});
  chart('rate', steps.map(l => [l.step, l.learning_rate]), ['learning rate'], ['--c1'], y => y === 0 ? '0' : y.toExponential(1), {includeZero: true});
  chart('norm', steps.map(l => [l.step, number(l.grad_norm)]), ['gradient norm'], ['--c3'], y => y.toFixed(Math.abs(y) >= 100 ? 0 : 2), {includeZero: true});
  const phaseColors = {data: '--c4', forward: '--c1', backward: '--c0', communication: '--c3', optimizer: '--c2', other: '--c5'};
  const phaseNames = Object.keys(phaseColors);
  chart('phases', steps.filter(l => l.phase_ms).map(l => [l.step, ...phaseNames.map(p => l.phase_ms[p])]), phaseNames, Object.values(phaseColors),
        y => y >= 1000 ? (y / 1000).toFixed(1) + ' s' : y >= 10 ? y.toFixed(0) : y.toFixed(1), {stackedGraph: true, includeZero: true, strokeWidth: 1, fillAlpha: 0.55, highlightCircleSize: 0});
  const hasPeak = steps.some(l => l.mfu !== undefined);
  if (hasPeak) $('use-note').textContent = 'of the threads\u2019 time; of the measured peak FLOP/s';
  chart('use', steps.filter(l => l.cpu_utilization !== undefined).map(l => [l.step, l.cpu_utilization, ...(hasPeak ? [l.mfu === undefined ? null : l.mfu] : [])]),
        hasPeak ? ['CPU', 'MFU'] : ['CPU'], hasPeak ? ['--c2', '--c1'] : ['--c2'], percent, {includeZero: true});
  const ranks = last ? last.peak_memory_bytes_by_rank.length : 0;
  const palette = ['--c0', '--c1', '--c2', '--c3'];
  chart('memory', steps.filter(l => l.peak_memory_bytes_by_rank.length === ranks).map(l => [l.step, ...l.peak_memory_bytes_by_rank.map(b => b / 2 ** 30)]),
        Array.from({length: ranks}, (_, r) => 'rank ' + r), Array.from({length: ranks}, (_, r) => palette[r % 4]), y => y.toFixed(2), {includeZero: true});
  const noisy = steps.filter(l => l.gradient_noise_trace !== undefined || l.rows !== undefined);
  const hasNoise = noisy.some(l => l.gradient_noise_scale !== undefined), hasRows = noisy.some(l => l.rows !== undefined);
  chart('batch', hasNoise || hasRows ? noisy.map(l => [l.step, ...(hasNoise ? [l.gradient_noise_scale === undefined ? null : l.gradient_noise_scale] : []), ...(hasRows ? [l.rows] : [])]) : [],
        [...(hasNoise ? ['noise scale'] : []), ...(hasRows ? ['rows'] : [])], [...(hasNoise ? ['--c3'] : []), ...(hasRows ? ['--c1'] : [])], count, {includeZero: true});
  const shared = steps.filter(l => l.batch_shares && l.batch_shares.length === ranks);
  const rankNames = Array.from({length: ranks}, (_, r) => 'rank ' + r), rankColors = Array.from({length: ranks}, (_, r) => palette[r % 4]);
  chart('shares', shared.map(l => [l.step, ...l.batch_shares]), rankNames, rankColors, count, {includeZero: true, stepPlot: true});
  chart('idle', shared.map(l => [l.step, ...l.idle_by_rank]), rankNames, rankColors, percent, {includeZero: true});
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    for (const {graph, colors} of graphs)
      graph.updateOptions({colors: colors.map(color), gridLineColor: color('--grid'), axisLineColor: color('--line')});
  });
  $('smooth').onchange = e => lossGraph && lossGraph.updateOptions({file: lossRows(e.target.checked ? 0.9 : 0)});
  $('log').onchange = e => lossGraph && lossGraph.updateOptions({logscale: e.target.checked});

  // ---- tables ------------------------------------------------------------------------------------------------
  const kindColors = {process: '--c5', parameters: '--c1', gradients: '--c0', optimizer: '--c2', buffers: '--c3', activations: '--c4', reserve: '--c6'};
  const kinds = Object.keys(kindColors);
  const totals = data.memory.map(m => kinds.reduce((sum, k) => sum + m[k], 0));
  data.memory.forEach((m, rank) => {
    const track = element('div', undefined, 'track');
    for (const k of kinds) {
      const part = element('i');
      part.style.background = `var(${kindColors[k]})`;
      part.style.width = 100 * m[k] / Math.max(...totals) + '%';
      part.title = `${k}: ${bytes(m[k])}`;
      if (m[k] > 0) track.appendChild(part);
    }
    $('kinds').append(element('span', 'rank ' + rank), track, element('span', bytes(totals[rank]), 'total'));
  });
  for (const k of kinds) {
    if (data.memory.length === 0) break;
    const entry = element('span'), mark = element('i');
    mark.style.background = `var(${kindColors[k]})`;
    const sizes = data.memory.map(m => m[k]), least = bytes(Math.min(...sizes)), most = bytes(Math.max(...sizes));
    entry.append(mark, k + ' ', element('b', least === most ? most : least + ' to ' + most));
    $('kinds-legend').appendChild(entry);
  }
  $('kinds-card').hidden = data.memory.length === 0;
  // predicted next to measured
  const predicted = (data.predicted_memory || []).filter((p, rank) => data.memory[rank]);
  if (predicted.length > 0) {
    const stated = ['parameters', 'gradients', 'optimizer', 'buffers', 'activations', 'reserve'];
    $('state-bytes').appendChild(row([['', '', 'th'], ...stated.map(k => [k, 'number', 'th']), ['without the program', 'number', 'th']]));
    const line = (label, kindsOf) => $('state-bytes').appendChild(row([[label], ...stated.map(k => [kindsOf[k] === undefined ? '' : bytes(kindsOf[k]), 'number']),
      [bytes(stated.reduce((sum, k) => sum + (kindsOf[k] || 0), 0)), 'number']]));
    predicted.forEach((p, rank) => { line('rank ' + rank + ', predicted', p); line('measured', data.memory[rank]); });
  }
  $('pipeline').innerHTML = data.pipeline || '';
  $('pipeline-card').hidden = !data.pipeline;
  const loads = data.expert_load || [];
  for (const {block, shares} of loads) {
    const line = row([['block ' + block], ...shares.map(s => [(s * shares.length).toFixed(2), 'number'])]);
    shares.forEach((s, e) => {
      const cell = line.children[e + 1];
      cell.style.background = `color-mix(in srgb, var(--c0) ${Math.min(100, 40 * s * shares.length).toFixed(0)}%, transparent)`;
      cell.title = `block ${block}, expert ${e}: ${(100 * s).toFixed(2)} % of the slots`;
    });
    $('experts').appendChild(line);
  }
  $('experts-card').hidden = loads.length === 0;
  const units = data.units || [];
  units.forEach((cells, i) => $('units').appendChild(row(cells.map((text, column) => [text, column > 0 && column < 4 ? 'number' : '', i === 0 ? 'th' : undefined]))));
  $('units-card').hidden = units.length === 0;

  const quote = (label, text, className) => {
    if (label) $('samples').appendChild(element('p', label, 'sample-label'));
    const block = element('blockquote', undefined, className);
    block.append(element('em', data.sample.prompt), text);
    $('samples').appendChild(block);
  };
  const {before, text: after} = data.sample;
  if (before) quote('before the training', before, 'before');
  if (after) quote(before ? 'after it' : '', after);
  if (before || after) $('sample-note').textContent = data.sample.note;
  else $('sample-card').hidden = true;
  if (data.communication.length > 0) {
    const headings = ['calls', 'payload', 'sent', 'by theory', 'blocked', 'of training time', 'in flight', 'hidden'];
    $('comm').appendChild(row([['axis', '', 'th'], ['operation', '', 'th'], ...headings.map(h => [h, 'number', 'th'])]));
    const share = x => (100 * x).toFixed(1) + ' %';
    let axis = null;
    for (const c of data.communication) {
      const first = c.axis !== axis;
      axis = c.axis;
      $('comm').appendChild(row([[first ? c.axis : ''], [c.operation], ...[count(c.count), bytes(c.payload_bytes), bytes(c.moved_bytes), bytes(c.wire_bytes), c.seconds_waited.toFixed(2) + ' s',
                                 end && end.seconds > 0 ? share(c.seconds_waited / end.seconds) : '', c.seconds_in_flight.toFixed(2) + ' s',
                                 c.seconds_in_flight > 0 ? share(c.hidden_share) : ''].map(text => [text, 'number'])], first ? 'axis' : ''));
    }
  } else {
    $('comm-card').hidden = true;
  }
  const show = value => typeof value === 'string' ? value : JSON.stringify(value);
  const leaves = (node, path, out) => {
    if (node !== null && typeof node === 'object' && !Array.isArray(node)) {
      if ('value' in node && 'origin' in node) out.push([path, node.value, node.origin]);
      else for (const key of Object.keys(node)) leaves(node[key], [...path, key], out);
    } else {
      out.push([path, node, '']);
    }
    return out;
  };
  const configuration = leaves(data.configuration, [], []);
  const drawConfig = onlyGiven => {
    const table = $('config');
    table.textContent = '';
    table.appendChild(row([['setting', '', 'th'], ['value', '', 'th'], ['origin', '', 'th']]));
    let section = null;
    for (const [path, value, origin] of configuration) {
      const isDefault = origin === 'default';
      if (onlyGiven && isDefault) continue;
      const here = path.slice(0, -1).join(' \u203a ');
      if (here !== section && here !== '') table.appendChild(row([[here], [''], ['']], 'section'));
      section = here;
      const tr = row([[''], [show(value), 'value'], [origin]], isDefault ? 'default' : '');
      tr.firstChild.appendChild(element('code', path[path.length - 1]));
      table.appendChild(tr);
    }
  };
  drawConfig(false);
  $('given').onchange = e => drawConfig(e.target.checked);
})();
