import * as echarts from 'echarts';

/** A line of a chart: its values by the number of schools. */
export interface Line {
  name: string;
  points: [schools: number, value: number][];
}

/** A chart over the number of schools. */
export interface Chart {
  /** Its subject and the unit of the values. */
  title: string;
  lines: Line[];
}

const width = 480;
const height = 320;

/** Draws charts next to each other. @returns an SVG document */
export function plot(charts: Chart[]): string {
  const svg = echarts.init(null, null, { renderer: 'svg', ssr: true, width: width * charts.length, height });
  const at = (n: number) => ({ left: width * n + 60, width: width - 110, top: 70, height: height - 120 });
  svg.setOption({
    animation: false,
    backgroundColor: '#ffffff',
    title: charts.map(({ title }, n) => ({ text: title, left: width * n + 8, top: 4, textStyle: { fontSize: 14 } })),
    legend: charts.map(({ lines }, n) => ({ data: lines.map(({ name }) => name), left: width * n + 8, top: 28 })),
    grid: charts.map((_, n) => at(n)),
    xAxis: charts.map((_, n) => ({
      type: 'log',
      gridIndex: n,
      name: 'schools',
      nameLocation: 'middle',
      nameGap: 28,
      min: 10,
      max: 'dataMax',
    })),
    yAxis: charts.map((_, n) => ({ type: 'value', gridIndex: n, min: 0 })),
    series: charts.flatMap(({ lines }, n) =>
      lines.map(({ name, points }) => ({ type: 'line', name, data: points, xAxisIndex: n, yAxisIndex: n })),
    ),
  });
  const text = svg.renderToSVGString();
  svg.dispose();
  return text;
}
