/** The one client of this page. */

import { OutlastClient } from "@outlast/client";

export const client = new OutlastClient();
